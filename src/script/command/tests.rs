use super::*;

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

#[test]
fn options_of_put_come_first_and_what_follows_is_data_even_if_it_looks_alike() {
    let command = Command::parse("put state=t ns=w1 a=1 ns=2 b=x=y").unwrap();
    let Command::Put { place, entries } = command else { panic!("not a put") };
    assert_eq!(place, Place { state: "t".to_owned(), namespace: Some("w1".to_owned()) });
    let entries: Vec<(&str, &str)> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(entries, [("a", "1"), ("ns", "2"), ("b", "x=y")]);
}

#[test]
fn a_clear_without_a_namespace_differs_from_one_with() {
    let Command::Clear(place) = Command::parse("clear").unwrap() else { panic!("not a clear") };
    assert_eq!((place.state.as_str(), place.namespace), ("s", None));
    let Command::Clear(place) = Command::parse("clear ns=w").unwrap() else { panic!("not a clear") };
    assert_eq!(place.namespace.as_deref(), Some("w"));
}

#[test]
fn a_restore_splits_the_checkpoint_from_the_job() {
    let line = "restore b from=a/chk-10 claim=claim fallback subtasks=3 retain=2";
    let Command::Restore { name, from, words } = Command::parse(line).unwrap() else {
        panic!("not a restore")
    };
    assert_eq!(name, "b");
    let expected = RestoreWords { from: "a".to_owned(), id: Some(id(10)), claim: true, fallback: true };
    assert_eq!(from, expected);
    assert_eq!((words.subtasks, words.retain, words.force), (Some(3), Some(2), false));
}

#[test]
fn a_restore_claims_in_any_spelling_and_not_in_two_ways_at_once() {
    let claims = |words: &str| match Command::parse(&format!("restore b from=a {words}")) {
        Ok(Command::Restore { from, .. }) => Some(from.claim),
        _ => None,
    };
    assert_eq!(["", "no-claim", "claim=no-claim"].map(claims), [Some(false); 3]);
    assert_eq!(["claim", "claim=claim", "claim claim=claim"].map(claims), [Some(true); 3]);
    assert_eq!(["claim no-claim", "claim=no-claim claim", "no-claim claim=claim"].map(claims), [None; 3]);
}

#[test]
fn what_a_restore_leaves_out_comes_from_its_source_except_directory_and_force() {
    let Command::Job { words: source, .. } =
        Command::parse("job a retain=3 key-groups=16 rewrite=max-age:2 dir=d force").unwrap()
    else {
        panic!("not a job")
    };
    let words = JobWords { retain: Some(1), ..JobWords::default() }.or(&source);
    assert_eq!((words.retain, words.key_groups), (Some(1), Some(16)));
    assert_eq!(words.rewrite, Some(vec![Rewrite::MaxAge(2)]));
    assert_eq!((words.dir, words.force), (None, false));
}

#[test]
fn a_fault_has_defaults_for_object_times_and_nth() {
    let plan = FaultPlan {
        operation: FaultOperation::Put,
        mode: FaultMode::Hang,
        class: FaultClass::Data,
        nth: 2,
        times: 1,
    };
    assert_eq!(Command::parse("fault put nth=2 mode=hang"), Ok(Command::Fault(plan)));
    let plan = FaultPlan { mode: FaultMode::After, class: FaultClass::Publish, nth: 1, times: 3, ..plan };
    let line = "fault put object=publish times=3 mode=after nth=1";
    assert_eq!(Command::parse(line), Ok(Command::Fault(plan)));
}

#[test]
fn what_is_hit_by_corrupt_and_lose_is_an_object_or_the_manifest() {
    let command = Command::Corrupt { id: None, victim: Victim::Object(0), at: None };
    assert_eq!(Command::parse("corrupt"), Ok(command));
    let command = Command::Corrupt { id: Some(id(2)), victim: Victim::Object(1), at: Some(7) };
    assert_eq!(Command::parse("corrupt chk-2 object=1 at=7"), Ok(command));
    let command = Command::Lose { id: id(2), victim: Victim::Manifest };
    assert_eq!(Command::parse("lose chk-2 manifest"), Ok(command));
}

#[test]
fn misuse_is_told_in_words_that_name_the_culprit() {
    let told = |line: &str| Command::parse(line).unwrap_err().to_string();
    assert_eq!(told("frobnicate"), "there is no command `frobnicate`");
    assert_eq!(told("job a retain=-1"), "retain `-1` is not a number in range");
    assert_eq!(told("job a rretain=1"), "`rretain=1` is not understood here");
    assert_eq!(told("job"), "the job's name is missing");
    assert_eq!(told("put"), "an entry of the form key=value is missing");
    assert_eq!(told("put k"), "`k` is not of the form key=value");
    assert_eq!(told("write 3"), "`3` is not a checkpoint id such as chk-3");
    assert_eq!(told("write chk-0"), "`chk-0` is not a checkpoint id such as chk-3");
    assert_eq!(told("decline chk-1"), "`subtask=` is missing");
    assert_eq!(told("fill p 3..1 v"), "range 3..1 runs backwards");
    assert_eq!(told("job a rewrite=space:0.5"), "space `0.5` is not a ratio of at least 1");
    assert_eq!(told("job a subtasks=1 subtasks=2"), "`subtasks=` is given twice");
    assert_eq!(told("job a base=any"), "base `any` is not one of confirmed, acknowledged");
    assert_eq!(told("fault put mode=before nth=0"), "`nth=` counts from 1");
}

#[test]
fn no_line_of_printable_text_makes_the_parser_panic() {
    use proptest::prelude::*;
    proptest!(|(line in "(put|fill|restore|fault|corrupt|job|write)( [a-z0-9.=/:-]{0,9}){0,4}")| {
        let _ = Command::parse(&line);
    });
}
