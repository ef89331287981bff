use super::*;
use crate::script::syntax::stanzas;

fn run(text: &str, outputs: &[&[&str]]) -> ScriptRun {
    let stanzas = stanzas("f.txt", text).unwrap();
    let outputs = outputs.iter().map(|lines| lines.iter().map(|line| (*line).to_owned()).collect());
    ScriptRun::new("f.txt", text, &stanzas, outputs.collect())
}

#[test]
fn what_fits_with_its_wildcards_is_no_mismatch_and_stays_as_it_is() {
    let text = "# head\n\nobjects\n----\n# why\nreferenced=1 meta=*\n\nclear\n";
    let run = run(text, &[&["referenced=1 meta=4"], &[]]);
    assert!(run.mismatches().is_empty());
    assert_eq!(run.rewritten(), text);
}

#[test]
fn a_mismatch_names_the_line_where_the_two_part() {
    let text = "get a b\n----\na=1\nb=2\n";
    let line = |actual: &[&str]| run(text, &[actual]).mismatches()[0].line;
    assert_eq!(line(&["a=1", "b=3"]), 4);
    assert_eq!(line(&["a=0", "b=2"]), 3);
    assert_eq!(line(&["a=1"]), 4, "the first line that is missing");
    assert_eq!(line(&["a=1", "b=2", "c=3"]), 4, "one too many");
    let printed = run(text, &[&["a=1"]]).mismatches()[0].to_string();
    let told =
        "f.txt:4: the output differs\n    get a b\n  expected:\n  - a=1\n  - b=2\n  actual:\n  + a=1\n";
    assert_eq!(printed, told);
}

#[test]
fn output_that_nobody_expected_is_a_mismatch() {
    let run = run("job a\nget k\n\nlen\n----\n1\n", &[&["k absent"], &[]]);
    let lines: Vec<usize> = run.mismatches().iter().map(|mismatch| mismatch.line).collect();
    assert_eq!(lines, [2, 6]);
}

#[test]
fn rewriting_replaces_output_and_nothing_else() {
    let text = "# head\njob a\n\nobjects # no comment\nlen\n----\nreferenced=* meta=*\n7\n\n# tail\n";
    let again = run(text, &[&[], &["referenced=2 meta=4", "8"]]);
    let expected = "# head\njob a\n\nobjects # no comment\nlen\n----\nreferenced=* meta=*\n8\n\n# tail\n";
    assert_eq!(again.rewritten(), expected);
    let silent = run("len\n----\n7\n", &[&[]]);
    assert_eq!(silent.rewritten(), "len\n");
    let spoken = run("len", &[&["7"]]);
    assert_eq!(spoken.rewritten(), "len\n----\n7\n");
}
