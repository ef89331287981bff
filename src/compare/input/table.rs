//! A table of the user's own: every row is a put.

use std::path::Path;

use csv::ByteRecord;

use super::{Events, csv_reader, open_file, table_failure, until_failure};
use crate::compare::error::{CompareError, RowProblem};
use crate::compare::event::Event;

/// Separates the columns inside a key or value. A key of two columns stays unambiguous as long as the
/// columns hold no tab, which is what the operations format asks for as well.
const SEPARATOR: u8 = b'\t';

/// Opens a table; the key is made of the given columns, the value of the others.
pub(super) fn open(file: &Path, key: &[String]) -> Result<Events, CompareError> {
    let mut rows = csv_reader(open_file(file)?);
    let header = rows.byte_headers().map_err(|error| table_failure(file, error))?.clone();
    let mut columns = Vec::with_capacity(key.len());
    for name in key {
        let column = position(&header, name, file)?;
        if columns.contains(&column) {
            return Err(twice(file, name));
        }
        columns.push(column);
    }
    let (file, width) = (file.to_owned(), header.len());
    Ok(until_failure(rows.into_byte_records().map(move |row| {
        let row = row.map_err(|error| table_failure(&file, error))?;
        if row.len() == width {
            return Ok(put(&row, &columns));
        }
        let line = row.position().map_or(0, csv::Position::line);
        let problem = RowProblem::Fields { found: row.len(), expected: width };
        Err(CompareError::Row { file: file.clone(), line, problem })
    })))
}

fn position(header: &ByteRecord, name: &str, file: &Path) -> Result<usize, CompareError> {
    let mut found = header.iter().enumerate().filter(|(_, column)| *column == name.as_bytes());
    match (found.next(), found.next()) {
        (Some((column, _)), None) => Ok(column),
        (Some(_), Some(_)) => Err(twice(file, name)),
        (None, _) => Err(CompareError::Column {
            file: file.to_owned(),
            column: name.to_owned(),
            present: header.iter().map(|column| String::from_utf8_lossy(column).into_owned()).collect(),
        }),
    }
}

fn twice(file: &Path, name: &str) -> CompareError {
    CompareError::ColumnTwice { file: file.to_owned(), column: name.to_owned() }
}

fn put(row: &ByteRecord, columns: &[usize]) -> Event {
    let mut key = Vec::new();
    let mut value = Vec::new();
    for column in columns {
        append(&mut key, row.get(*column).unwrap_or_default());
    }
    for (column, field) in row.iter().enumerate() {
        if !columns.contains(&column) {
            append(&mut value, field);
        }
    }
    Event::Put { key, value }
}

fn append(text: &mut Vec<u8>, field: &[u8]) {
    if !text.is_empty() {
        text.push(SEPARATOR);
    }
    text.extend_from_slice(field);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn table(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn columns(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_row_becomes_a_put_of_its_key_columns_in_the_order_asked_for() {
        let file = table("a,b,c\n1,2,3\n");
        let events: Vec<_> = open(file.path(), &columns(&["c", "a"])).unwrap().collect();
        assert_eq!(events.len(), 1);
        let event = events.into_iter().next().unwrap().unwrap();
        assert_eq!(event, Event::Put { key: b"3\t1".to_vec(), value: b"2".to_vec() });
    }

    #[test]
    fn a_missing_column_is_named_beside_those_that_are_there() {
        let file = table("a,b\n1,2\n");
        let error = open(file.path(), &columns(&["tail"])).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("'tail'") && message.ends_with("its columns are a, b"), "{message}");
    }

    #[test]
    fn a_key_of_a_column_that_is_there_twice_is_refused() {
        let file = table("a,b,a\n1,2,3\n");
        for key in [&["a"][..], &["b", "b"]] {
            let error = open(file.path(), &columns(key)).err().unwrap();
            assert!(error.to_string().contains(&format!("'{}' is there twice", key[0])), "{error}");
        }
        assert!(open(file.path(), &columns(&["b"])).is_ok(), "a value may have such columns");
    }

    #[test]
    fn a_short_row_ends_the_stream_with_its_line_number() {
        let file = table("a,b\n1,2\n3\n4,5\n");
        let events: Vec<_> = open(file.path(), &columns(&["a"])).unwrap().collect();
        assert_eq!(events.len(), 2);
        let message = events.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(message.ends_with("line 3: 1 fields, expected 2"), "{message}");
    }
}
