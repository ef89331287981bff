use super::*;

async fn output(text: &str, options: &ScriptOptions) -> String {
    let script = Script::parse("t.txt", text).unwrap();
    script.run(options).await.unwrap().rewritten().to_owned()
}

#[tokio::test]
async fn the_run_goes_on_after_an_error_and_prints_it_in_one_line() {
    let printed = output("dump\njob a\nnonsense\nput k=v\nget k", &ScriptOptions::default()).await;
    let lines: Vec<&str> = printed.lines().skip(6).collect();
    let [first, second, third] = lines[..] else { panic!("{printed}") };
    assert!(first.starts_with("error not-found: "), "{first}");
    assert_eq!(second, "error invalid-argument: there is no command `nonsense`");
    assert_eq!(third, "k=v");
}

#[tokio::test]
async fn two_runs_of_one_script_print_the_same() {
    let text = "job a subtasks=2 retain=2\nfill k 0..50 v\ncheckpoint\ndel k0001\ncheckpoint\nobjects\ncrash\n\
                restore b from=a\ncheckpoint\nobjects";
    let options = ScriptOptions::default();
    assert_eq!(output(text, &options).await, output(text, &options).await);
}

#[test]
fn a_byte_order_mark_before_the_header_is_no_part_of_it() {
    let script = Script::parse("t.txt", "\u{feff}# backends: heap rocksdb\njob a").unwrap();
    assert_eq!((script.backends().len(), &*script.stanzas[0].commands[0].text), (2, "job a"));
}

#[tokio::test]
async fn memory_and_local_disk_print_the_same() {
    let text = "job a retain=2\nput k=1\ncheckpoint\nput k=2\ncheckpoint\nobjects\nverify\ncorrupt\nverify";
    let on = |medium| ScriptOptions { medium: Some(medium), ..ScriptOptions::default() };
    assert_eq!(output(text, &on(Medium::Memory)).await, output(text, &on(Medium::File)).await);
}

#[tokio::test]
async fn all_jobs_of_a_script_share_one_store() {
    let printed = output("job a store=memory\n\njob b store=file", &ScriptOptions::default()).await;
    assert!(printed.contains("error invalid-argument: all jobs of a script share one store"), "{printed}");
}

#[tokio::test]
async fn a_backend_that_is_not_in_this_build_is_named() {
    let script = Script::parse("t.txt", "# backends: abacus\njob a").unwrap();
    assert_eq!(script.backends(), ["abacus"]);
    let options = ScriptOptions { backend: Some("abacus".to_owned()), ..ScriptOptions::default() };
    let error = script.run(&options).await.unwrap_err().to_string();
    assert!(error.starts_with("backend `abacus` is not in this build"), "{error}");
}
