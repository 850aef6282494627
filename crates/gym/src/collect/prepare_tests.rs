use super::*;
use serde_json::json;

fn run(input: &str, options: &RowOptions) -> Result<(Vec<String>, Prepared), CollectError> {
    let mut out = Vec::new();
    let prepared = prepare(
        &mut input.as_bytes(),
        Path::new("in.jsonl"),
        options,
        &mut out,
        Path::new("out.jsonl"),
    )?;
    let text = String::from_utf8(out).unwrap();
    for rollout in &prepared.plan.rollouts {
        let from = rollout.offset as usize;
        assert_eq!(
            text.as_bytes()[from + rollout.len as usize],
            b'\n',
            "the index points at whole lines"
        );
        assert!(text[from..].starts_with('{'));
    }
    Ok((text.lines().map(str::to_owned).collect(), prepared))
}

fn with_agent() -> RowOptions {
    RowOptions { agent: Some("a".into()), ..RowOptions::default() }
}

fn message(input: &str, options: &RowOptions) -> String {
    run(input, options).unwrap_err().to_string()
}

#[test]
fn a_row_keeps_its_members_and_gets_agent_and_indices() {
    let (lines, _) =
        run(r#"{"responses_create_params":{"input":"hi","x":1.50},"answer":"42"}"#, &with_agent())
            .unwrap();
    assert_eq!(
        lines,
        [
            r#"{"responses_create_params":{"input":"hi","x":1.50},"answer":"42","agent_ref":{"name":"a"},"_ng_task_index":0,"_ng_rollout_index":0}"#
        ]
    );
}

#[test]
fn rows_are_written_compactly() {
    let (lines, _) =
        run("{ \"responses_create_params\" : { \"input\": \"a  b\" } }\r\n\n", &with_agent())
            .unwrap();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].starts_with(r#"{"responses_create_params":{"input":"a  b"},"#),
        "{}",
        lines[0]
    );
}

#[test]
fn equal_lines_are_one_task_and_repeats_count_on() {
    let row = |x: u8| format!("{{\"responses_create_params\":{{\"input\":\"{x}\"}}}}\n");
    let options = RowOptions { num_repeats: NumRepeats::Every(2), ..with_agent() };
    let (_, prepared) = run(&[row(1), row(1), row(2)].concat(), &options).unwrap();
    let indices: Vec<_> =
        prepared.plan.rollouts.iter().map(|rollout| (rollout.task, rollout.rollout)).collect();
    assert_eq!(indices, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]);
}

#[test]
fn a_task_index_of_the_row_is_kept() {
    let (lines, prepared) =
        run(r#"{"responses_create_params":{},"_ng_task_index":40}"#, &with_agent()).unwrap();
    assert_eq!(prepared.plan.rollouts[0].task, 40);
    assert!(lines[0].contains(r#""_ng_task_index":40"#));
    assert_eq!(
        message(r#"{"responses_create_params":{},"_ng_task_index":-1}"#, &with_agent()),
        "bad row in \"in.jsonl\", line 1: `_ng_task_index` must be a whole number of 0 or more, got -1"
    );
}

#[test]
fn overrides_replace_whole_parameters() {
    let options = RowOptions {
        create_params: vec![
            ("temperature".into(), "0.5".into()),
            ("reasoning".into(), r#"{"effort":"low"}"#.into()),
        ],
        ..with_agent()
    };
    let (lines, _) =
        run(r#"{"responses_create_params":{"reasoning":{"summary":"auto"},"input":[]}}"#, &options)
            .unwrap();
    assert!(
        lines[0].starts_with(
            r#"{"responses_create_params":{"reasoning":{"effort":"low"},"input":[],"temperature":0.5}"#
        ),
        "{}",
        lines[0]
    );
}

#[test]
fn the_seed_of_a_rollout_goes_into_the_extra_body() {
    let options = RowOptions { num_repeats: NumRepeats::Every(2), add_seed: true, ..with_agent() };
    let (lines, _) = run(
        r#"{"responses_create_params":{"metadata":{"extra_body":"{\"k\":1}","m":"n"}}}"#,
        &options,
    )
    .unwrap();
    assert!(
        lines[1].contains(r#""metadata":{"extra_body":"{\"k\":1,\"seed\":1}","m":"n"}"#),
        "{}",
        lines[1]
    );
    let (lines, _) = run(r#"{"responses_create_params":{"input":"x"}}"#, &options).unwrap();
    assert!(lines[0].contains(r#""metadata":{"extra_body":"{\"seed\":0}"}"#), "{}", lines[0]);
}

#[test]
fn the_limit_counts_lines() {
    let input = "{\"responses_create_params\":{}}\n".repeat(5);
    let options = RowOptions { limit: Some(2), num_repeats: NumRepeats::Every(3), ..with_agent() };
    assert_eq!(run(&input, &options).unwrap().0.len(), 6);
    let broken = format!("{input}not json\n");
    assert!(run(&broken, &options).is_ok(), "what lies behind the limit is not read");
}

#[test]
fn malformed_rows_are_named_by_file_line_and_column() {
    let input = "{\"responses_create_params\":{}}\n{\"responses_create_params\":{]}\n";
    insta::assert_snapshot!(message(input, &with_agent()), @r#"bad row in "in.jsonl", line 2: not a JSON object (key must be a string, column 29)"#);
    insta::assert_snapshot!(message("[1]\n", &with_agent()), @r#"bad row in "in.jsonl", line 1: not a JSON object (invalid type: sequence, expected a JSON object)"#);
    insta::assert_snapshot!(message("{\"q\":1}\n", &with_agent()), @r#"bad row in "in.jsonl", line 1: `responses_create_params` is missing; give it, or build it with --prompt-config"#);
    insta::assert_snapshot!(message("{\"responses_create_params\":[]}\n", &with_agent()), @r#"bad row in "in.jsonl", line 1: `responses_create_params` must be an object"#);
}

#[test]
fn rows_without_an_agent_are_reported_together() {
    let input = "{\"responses_create_params\":{}}\n".repeat(12);
    insta::assert_snapshot!(message(&input, &RowOptions::default()), @"no agent for 12 rows (the first: line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)");
}

#[test]
fn an_empty_input_is_an_error() {
    assert_eq!(message("\n", &with_agent()), "\"in.jsonl\" has no rows");
}

#[test]
fn repeats_may_depend_on_the_agent() {
    let row = |agent: &str| {
        format!("{{\"responses_create_params\":{{}},\"agent_ref\":{{\"name\":\"{agent}\"}}}}\n")
    };
    let input = [row("a"), row("b")].concat();
    let repeats = |value| NumRepeats::from_value(&value).unwrap();
    let options = RowOptions {
        num_repeats: repeats(json!({"a": 3, "_default": 1, "z": 2})),
        ..RowOptions::default()
    };
    let (lines, prepared) = run(&input, &options).unwrap();
    assert_eq!(lines.len(), 4);
    assert_eq!(prepared.notices, ["num_repeats names agents that no row names: z"]);
    let options = RowOptions { num_repeats: repeats(json!({"a": 3})), ..RowOptions::default() };
    assert_eq!(message(&input, &options), "num_repeats has no entry for b and no `_default`");
    assert!(NumRepeats::from_value(&json!(0)).is_err());
    assert_eq!(repeats(json!(null)), NumRepeats::Every(1));
}

#[test]
fn a_prompt_builds_the_input_and_excludes_another() {
    let prompt = Prompt::from_value(&json!({"user": "{q}?"})).unwrap();
    let options = RowOptions { prompt: Some(prompt), ..with_agent() };
    let (lines, _) =
        run(r#"{"q":"why","responses_create_params":{"tools":[]}}"#, &options).unwrap();
    assert!(
        lines[0].contains(
            r#""responses_create_params":{"tools":[],"input":[{"role":"user","content":"why?"}]}"#
        ),
        "{}",
        lines[0]
    );
    let (lines, _) = run(r#"{"q":"why"}"#, &options).unwrap();
    assert!(lines[0].contains(r#""input":[{"role":"user","content":"why?"}]"#));
    assert_eq!(
        message(r#"{"q":"why","responses_create_params":{"input":"x"}}"#, &options),
        "a prompt config is given, but 1 row already has an input (the first: line 1)"
    );
}

#[test]
fn skills_are_stamped_on_every_row() {
    let options = RowOptions { skills_ref: Some(r#"{"path":"s"}"#.into()), ..with_agent() };
    let (lines, prepared) = run(r#"{"responses_create_params":{}}"#, &options).unwrap();
    assert!(lines[0].contains(r#""skills_ref":{"path":"s"},"_ng_task_index":0"#), "{}", lines[0]);
    assert_eq!(prepared.plan.stamps[0].skills_ref.as_deref(), Some(r#"{"path":"s"}"#));
}
