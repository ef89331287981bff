//! A file of operations, one a line, separated by tabs; bytes, without escaping.
//!
//! ```text
//! P key value    put          D key    remove
//! X              clear        C label  checkpoint
//! ```
//!
//! A value is the rest of its line, tabs included.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::{Events, open_file, until_failure};
use crate::compare::error::{CompareError, RowProblem};
use crate::compare::event::Event;

/// No sound line is longer; a file without line ends must not fill the memory.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Opens a file of operations.
pub(super) fn open(file: &Path) -> Result<Events, CompareError> {
    let input = open_file(file)?;
    Ok(until_failure(Operations { input, file: file.to_owned(), line: 0, text: Vec::new() }))
}

struct Operations {
    input: Box<dyn BufRead>,
    file: PathBuf,
    /// Lines read so far.
    line: u64,
    /// The present line, kept for its room.
    text: Vec<u8>,
}

impl Operations {
    /// Reads the next line into `text`, without its end; false at the end of the file.
    fn read_line(&mut self) -> Result<bool, CompareError> {
        self.text.clear();
        let mut input = self.input.by_ref().take(LINE_BYTES_MAX + 1);
        let read = input
            .read_until(b'\n', &mut self.text)
            .map_err(|source| CompareError::Read { file: self.file.clone(), source })?;
        self.line += 1;
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
        } else if read as u64 > LINE_BYTES_MAX {
            return Err(self.failure(RowProblem::TooLong { bytes_max: LINE_BYTES_MAX }));
        }
        Ok(read > 0)
    }

    fn failure(&self, problem: RowProblem) -> CompareError {
        CompareError::Row { file: self.file.clone(), line: self.line, problem }
    }
}

impl Iterator for Operations {
    type Item = Result<Event, CompareError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read_line() {
            Ok(true) => Some(event(&self.text).map_err(|problem| self.failure(problem))),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

fn event(line: &[u8]) -> Result<Event, RowProblem> {
    let mut fields = line.splitn(3, |byte| *byte == b'\t');
    let code = fields.next().unwrap_or_default();
    let expected = match code {
        b"P" => 3,
        b"D" => 2,
        b"X" => 1,
        b"C" => return Ok(Event::Mark),
        _ => {
            return Err(RowProblem::Operation {
                code: String::from_utf8_lossy(code).chars().take(40).collect(),
            });
        }
    };
    match (code, fields.next(), fields.next()) {
        (b"P", Some(key), Some(value)) => Ok(Event::Put { key: key.to_vec(), value: value.to_vec() }),
        (b"D", Some(key), None) => Ok(Event::Remove { key: key.to_vec() }),
        (b"X", None, None) => Ok(Event::Clear),
        _ => {
            let found = line.split(|byte| *byte == b'\t').count();
            Err(RowProblem::Fields { found, expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const TEXT: &[u8] = b"P\tk\xff\tv\tw\nP\tempty\t\nD\tk\xff\nX\nC\t2013-01-01\nP\tlast\t1";

    fn read(bytes: &[u8]) -> Vec<Result<Event, CompareError>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        open(file.path()).unwrap().collect()
    }

    fn expected() -> Vec<Event> {
        vec![
            Event::Put { key: b"k\xff".to_vec(), value: b"v\tw".to_vec() },
            Event::Put { key: b"empty".to_vec(), value: Vec::new() },
            Event::Remove { key: b"k\xff".to_vec() },
            Event::Clear,
            Event::Mark,
            Event::Put { key: b"last".to_vec(), value: b"1".to_vec() },
        ]
    }

    #[test]
    fn every_operation_is_read_as_bytes_without_escaping() {
        let events: Vec<_> = read(TEXT).into_iter().map(Result::unwrap).collect();
        assert_eq!(events, expected());
    }

    #[test]
    fn a_gzip_file_reads_like_a_plain_one_whatever_its_name() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(TEXT).unwrap();
        let events: Vec<_> = read(&packed.finish().unwrap()).into_iter().map(Result::unwrap).collect();
        assert_eq!(events, expected());
    }

    #[test]
    fn a_malformed_line_is_told_with_its_number_and_ends_the_stream() {
        for (text, message) in [
            ("X\nP\tkey\n", "line 2: 2 fields, expected 3"),
            ("Q\tkey\nX\n", "line 1: unknown operation 'Q', expected P, D, X or C"),
            ("X\n\nX\n", "line 2: unknown operation '', expected P, D, X or C"),
            ("D\tkey\tvalue\n", "line 1: 3 fields, expected 2"),
        ] {
            let events = read(text.as_bytes());
            let error = events.last().unwrap().as_ref().unwrap_err().to_string();
            assert!(error.ends_with(message), "{error}");
        }
    }

    #[test]
    fn a_cut_gzip_file_is_an_error_and_not_a_shorter_input() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(TEXT).unwrap();
        let mut bytes = packed.finish().unwrap();
        bytes.truncate(bytes.len() - 9);
        assert!(read(&bytes).last().unwrap().is_err());
    }

    #[test]
    fn an_xz_file_is_refused_with_what_to_do() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"\xfd7zXZ\0rest").unwrap();
        let message = open(file.path()).err().unwrap().to_string();
        assert!(message.contains("xz -dk"), "{message}");
    }
}
