use serde_json::json;

use super::*;

#[test]
fn a_file_is_merged_after_everything_it_includes_and_once() {
    let dir = dir(&[
        ("a.yaml", "config_paths: [b.yaml, c.yaml]\nx: a\na: 1\n"),
        ("b.yaml", "config_paths:\n- d.yaml\nx: b\ny: b\nb: 1\n"),
        ("c.yaml", "config_paths: [d.yaml]\nx: c\ny: c\n"),
        ("d.yaml", "x: d\ny: d\nz: d\n"),
    ]);
    let mut request = request(dir.path(), &[]);
    request.config_paths = vec!["a.yaml".to_owned()];
    let config = load_counted(&request).unwrap();
    assert_eq!(config.value()["config_paths"], json!(["d.yaml", "b.yaml", "c.yaml", "a.yaml"]));
    assert_eq!(
        pick(config.value(), &["x", "y", "z", "a", "b"]),
        json!({"x": "a", "y": "c", "z": "d", "a": 1, "b": 1})
    );
    let place = dir.path().join("c.yaml:1:16: d.yaml is included more than once");
    assert_eq!(config.warnings(), [place.display().to_string()]);
}

#[test]
fn mappings_merge_and_everything_else_replaces() {
    let dir = dir(&[
        ("a.yaml", "m: {x: 1, y: {z: 1}}\nl: [1, 2]\ns: 1\nn: 1\nq: 5\nr: ${m}\n"),
        ("b.yaml", "m: {y: {w: 2}}\nl: [3]\ns: {t: 1}\nn: null\nq: ???\nr: {k: 1}\n"),
    ]);
    let mut request = request(dir.path(), &[]);
    request.config_paths = vec!["a.yaml".to_owned(), "b.yaml".to_owned()];
    let config = load_counted(&request).unwrap();
    assert_eq!(
        pick(config.value(), &["m", "l", "s", "n", "q", "r"]),
        json!({
            "m": {"x": 1, "y": {"z": 1, "w": 2}}, "l": [3], "s": {"t": 1}, "n": null, "q": 5,
            "r": {"x": 1, "y": {"z": 1}, "k": 1},
        })
    );
}

#[test]
fn env_yaml_is_over_the_files_and_under_the_command_line() {
    let dir = dir(&[
        ("a.yaml", "x: a\ny: a\nz: a\n"),
        ("env.yaml", "config_paths: [a.yaml]\ny: env\nz: env\n"),
    ]);
    let config = load_counted(&request(dir.path(), &["+z=cli"])).unwrap();
    assert_eq!(pick(config.value(), &["x", "y", "z"]), json!({"x": "a", "y": "env", "z": "cli"}));
}

#[test]
fn config_paths_of_flags_selectors_and_overrides_add_up_in_order() {
    let dir = dir(&[
        ("one.yaml", "x: 1\n"),
        ("two.yaml", "x: 2\n"),
        ("three.yaml", "x: 3\n"),
        ("env.yaml", "config_paths: [absent.yaml]\n"),
    ]);
    let mut request =
        request(dir.path(), &["+config_paths=[two.yaml]", "+config_paths=[three.yaml]"]);
    request.config_paths = vec!["one.yaml".to_owned()];
    let paths =
        |request: &LoadRequest| load_counted(request).unwrap().value()["config_paths"].clone();
    assert_eq!(paths(&request), json!(["one.yaml", "two.yaml", "three.yaml"]));

    request.overrides = vec!["++config_paths=[two.yaml]".to_owned()];
    assert_eq!(paths(&request), json!(["two.yaml"]));

    request.config_paths = Vec::new();
    request.overrides = vec!["+config_paths=[${which}]".to_owned(), "+which=three.yaml".to_owned()];
    assert_eq!(paths(&request), json!(["three.yaml"]));
}

#[test]
fn the_first_root_that_has_a_file_wins() {
    let cwd = dir(&[("a.yaml", "x: cwd\n"), ("b.yaml", "y: cwd\n"), ("c.yaml", "z: cwd\n")]);
    let extra = dir(&[("a.yaml", "x: extra\n"), ("b.yaml", "y: extra\n")]);
    let flag = dir(&[("a.yaml", "x: flag\n")]);
    let mut request = request(cwd.path(), &["+config_paths=[a.yaml,b.yaml,c.yaml]"]);
    request.search_dirs = vec![flag.path().to_owned()];
    request.environment_variables.insert(
        gym_telemetry::env_vars::GYM_EXTRA_ROOTS.to_owned(),
        extra.path().display().to_string(),
    );
    let config = load_counted(&request).unwrap();
    assert_eq!(
        pick(config.value(), &["x", "y", "z"]),
        json!({"x": "flag", "y": "extra", "z": "cwd"})
    );
}

#[test]
fn a_selector_prefers_the_disk_and_takes_a_flavor() {
    let weather = "weather:\n  resources_servers:\n    weather:\n      entrypoint: app.py\n      domain: math\n";
    let dir = dir(&[
        ("resources_servers/weather/configs/weather.yaml", weather),
        ("resources_servers/weather/configs/hard.yaml", weather),
        ("environments/trip/config.yaml", "kind: trip\n"),
        ("environments/trip/winter.yaml", "kind: winter\n"),
        ("benchmarks/trip/deep/config.yaml", "deep: true\n"),
    ]);
    let mut request = request(dir.path(), &[]);
    request.resources_server = Some("weather/hard".to_owned());
    request.environment = Some("trip/winter".to_owned());
    request.benchmark = Some("trip/deep".to_owned());
    let config = load_counted(&request).unwrap();
    let paths: Vec<_> = [
        "benchmarks/trip/deep/config.yaml",
        "environments/trip/winter.yaml",
        "resources_servers/weather/configs/hard.yaml",
    ]
    .map(|path| dir.path().join(path).display().to_string())
    .into();
    assert_eq!(config.value()["config_paths"], json!(paths));

    request.resources_server = Some("weather".to_owned());
    let config = load_counted(&request).unwrap();
    assert_eq!(config.value()["weather"]["resources_servers"]["weather"]["domain"], "math");
}

#[test]
fn the_message_for_a_file_that_is_missing_or_no_config_says_where_and_what() {
    let dir = dir(&[
        ("lists.yaml", "config_paths:\n- weather.yml\n"),
        ("weather.yaml", ""),
        ("text.yaml", "config_paths: a.yaml\n"),
        ("top.yaml", "- a\n"),
        ("m.yaml", "a: {b: [1]}\n"),
        ("n.yaml", "x: 1\na:\n  b:\n    c: 1\n"),
    ]);
    let with = |files: &[&str], selector: Option<&str>| {
        let mut request = request(dir.path(), &[]);
        request.config_paths = files.iter().map(|file| (*file).to_owned()).collect();
        request.resources_server = selector.map(str::to_owned);
        message(&request)
    };
    let all = [
        with(&["nope.yaml"], None),
        with(&["lists.yaml"], None),
        with(&["text.yaml"], None),
        with(&["top.yaml"], None),
        with(&["m.yaml", "n.yaml"], None),
        with(&[], Some("wether")),
        with(&[], Some("weather/wether")),
    ];
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    error: config file nope.yaml not found
    hint: searched in DIR and the files inside the binary

    error: DIR/lists.yaml:2:3: config file weather.yml not found
    hint: did you mean weather.yaml? searched in DIR and the files inside the binary

    error: DIR/text.yaml:1:15: config_paths: expected a list of file names, got a string

    error: DIR/top.yaml:1:1: expected a mapping at the top of a config file
    hint: write `key: value` lines

    error: DIR/n.yaml:3:3: a.b: cannot merge a mapping over a list
    hint: the earlier value is at DIR/m.yaml:1:5; give a.b one kind of value everywhere

    error: --resources-server wether: no such config, expected resources_servers/wether/configs/wether.yaml in a search directory
    hint: did you mean weather? searched in DIR and the files inside the binary

    error: --resources-server weather/wether: no such config, expected resources_servers/weather/configs/wether.yaml in a search directory
    hint: did you mean weather/weather? searched in DIR and the files inside the binary
    "#);
}
