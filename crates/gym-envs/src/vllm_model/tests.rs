//! One case for each row of the conversion tables, with bytes.

use gym_server::api::{CreateParams, Object, Urls};
use serde_json::json;

use super::config::VllmModelConfig;
use super::*;

fn converted(body: &str) -> String {
    let params = CreateParams::parse(body.as_bytes(), Urls::Without).expect(body);
    String::from_utf8(to_chat(&params).expect(body).to_json()).expect("utf-8")
}

/// The messages that a list of items (or a string) becomes.
fn messages(input: &str) -> String {
    let body = converted(&format!(r#"{{"input":{input}}}"#));
    body.strip_prefix(r#"{"messages":"#)
        .and_then(|rest| rest.strip_suffix('}'))
        .expect("messages only")
        .to_owned()
}

fn refused(body: &str) -> ToChatError {
    let params = CreateParams::parse(body.as_bytes(), Urls::Without).expect(body);
    to_chat(&params).expect_err(body)
}

#[test]
fn a_string_becomes_a_user_message_with_one_text_part() {
    assert_eq!(
        messages(r#""a\"b""#),
        r#"[{"role":"user","content":[{"type":"text","text":"a\"b"}]}]"#
    );
}

#[test]
fn each_item_becomes_its_chat_form() {
    let table = [
        (r#"{"role":"user","content":"x"}"#, r#"{"role":"user","content":"x"}"#),
        (
            r#"{"type":"message","role":"developer","content":"x"}"#,
            r#"{"role":"developer","content":"x"}"#,
        ),
        (
            r#"{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:u"},{"type":"input_image","image_url":"u","detail":"low"},{"type":"input_video","video_url":{"url":"v"}},{"type":"input_video","video":"w"}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:u","detail":"auto"}},{"type":"image_url","image_url":{"url":"u","detail":"low"}},{"type":"video_url","video_url":{"url":"v"}},{"type":"video_url","video_url":{"url":"w"}}]}"#,
        ),
        (
            r#"{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a\n","annotations":[]},{"type":"output_text","text":"b","annotations":[]}]}"#,
            r#"{"role":"assistant","content":"a\nb"}"#,
        ),
        (
            r#"{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"why"},{"type":"summary_text","text":""},{"type":"summary_text","text":"so"}],"content":null}"#,
            r#"{"role":"assistant","content":"<think>why</think><think>so</think>"}"#,
        ),
        (
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"k\":1}"}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"k\":1}"}}]}"#,
        ),
        (
            r#"{"type":"function_call_output","call_id":"c","output":"o"}"#,
            r#"{"role":"tool","content":"o","tool_call_id":"c"}"#,
        ),
        (
            r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"o"}]}"#,
            r#"{"role":"tool","content":[{"type":"text","text":"o"}],"tool_call_id":"c"}"#,
        ),
        (
            r#"{"role":"tool","tool_call_id":"c","content":"o"}"#,
            r#"{"role":"tool","content":"o","tool_call_id":"c"}"#,
        ),
        (
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
        ),
    ];
    for (item, message) in table {
        assert_eq!(messages(&format!("[{item}]")), format!("[{message}]"));
    }
}

#[test]
fn consecutive_items_of_the_assistant_are_one_message() {
    let input = r#"[{"role":"user","content":"q"},
        {"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"t"}]},
        {"role":"assistant","content":"a"},
        {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
        {"type":"function_call","call_id":"2","name":"g","arguments":"{}"},
        {"type":"function_call_output","call_id":"1","output":"o"},
        {"type":"reasoning","id":"r2","summary":[]},
        {"role":"user","content":"again"},
        {"role":"assistant","content":"end"}]"#;
    assert_eq!(
        messages(input),
        r#"[{"role":"user","content":"q"},{"role":"assistant","content":"<think>t</think>a","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","content":"o","tool_call_id":"1"},{"role":"user","content":"again"},{"role":"assistant","content":"end"}]"#
    );
}

#[test]
fn instructions_take_in_the_leading_system_messages() {
    let input = r#"[{"role":"developer","content":"b"},{"role":"system","content":[{"type":"input_text","text":"c"}]},{"role":"user","content":"q"},{"role":"system","content":"later"}]"#;
    assert_eq!(
        converted(&format!(r#"{{"instructions":"a","input":{input}}}"#)),
        r#"{"messages":[{"role":"system","content":"a\n\nb\n\nc"},{"role":"user","content":"q"},{"role":"system","content":"later"}]}"#
    );
    assert!(messages(input).starts_with(r#"[{"role":"developer","content":"b"},{"role":"system","content":[{"type":"text","text":"c"}]}"#));
}

#[test]
fn parameters_are_renamed_kept_or_dropped() {
    let tools = r#""tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}]"#;
    let body = format!(
        r#"{{"input":"q","max_output_tokens":9,"reasoning":{{"effort":"low"}},{tools},"tool_choice":"required","parallel_tool_calls":false,"temperature":0.5,"top_p":1,"metadata":{{"k":"v"}},"store":true,"user":"u","service_tier":"auto","top_logprobs":null,"model":"m","text":{{}},"include":[],"truncation":"auto","previous_response_id":"p","prompt":{{}},"background":false,"max_tool_calls":3}}"#
    );
    assert_eq!(
        converted(&body),
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}],"temperature":0.5,"top_p":1,"metadata":{"k":"v"},"store":true,"user":"u","service_tier":"auto","top_logprobs":null,"model":"m","max_tokens":9,"reasoning_effort":"low","tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],"tool_choice":"required","parallel_tool_calls":false}"#
    );
    assert_eq!(
        converted(r#"{"input":"q","tools":[],"tool_choice":"auto","parallel_tool_calls":true}"#),
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}]}"#
    );
}

#[test]
fn what_has_no_chat_form_is_refused() {
    let tool =
        |tool: &str, more: &str| refused(&format!(r#"{{"input":"q","tools":[{tool}]{more}}}"#));
    let function = r#"{"type":"function","name":"f","parameters":{}}"#;
    assert_eq!(refused(r#"{"input":[{"type":"mcp_call"}]}"#), ToChatError::Item("mcp_call".into()));
    assert_eq!(
        refused(r#"{"input":[{"role":"user","content":[{"type":"input_file"}]}]}"#),
        ToChatError::Part("input_file".into())
    );
    assert_eq!(
        refused(
            r#"{"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}]}"#
        ),
        ToChatError::OutputPart("input_image".into())
    );
    assert_eq!(tool(r#"{"type":"web_search"}"#, ""), ToChatError::Tool("web_search".into()));
    assert_eq!(
        tool(r#"{"type":"function","name":"f","description":null}"#, ""),
        ToChatError::NullDescription("f".into())
    );
    assert_eq!(tool("", r#","tool_choice":"required""#), ToChatError::RequiredWithoutTools);
    assert_eq!(
        tool(function, r#","tool_choice":{"type":"function","name":"f"}"#),
        ToChatError::ToolChoiceObject
    );
}

fn config(more: serde_json::Value) -> VllmModelConfig {
    let mut block = json!({"base_url": "http://h/v1", "api_key": "k", "model": "m", "return_token_id_information": false, "uses_reasoning_parser": true});
    for (key, value) in more.as_object().expect("object") {
        block[key] = value.clone();
    }
    serde_json::from_value(block).expect("config")
}

/// A chat body as it goes upstream.
fn sent(body: &str, more: serde_json::Value) -> String {
    let config = config(more);
    let additions = Additions::new(&config);
    let mut object = Object::parse(body);
    upstream::apply(&mut object, &config, &additions).expect(body);
    String::from_utf8(object.to_json()).expect("utf-8")
}

#[test]
fn reasoning_of_earlier_turns_leaves_the_content() {
    let body = r#"{"messages":[{"role":"assistant","content":"<think>a</think>x<think>b</think>y","tool_calls":[]},{"role":"user","content":"<think>mine</think>"}]}"#;
    let user = r#"{"role":"user","content":"<think>mine</think>"}"#;
    assert_eq!(
        sent(body, json!({})),
        format!(
            r#"{{"messages":[{{"role":"assistant","content":"xy","tool_calls":[],"reasoning_content":"a","reasoning":"a"}},{user}],"model":"m"}}"#
        )
    );
    assert_eq!(
        sent(body, json!({"uses_interleaved_reasoning": false})),
        format!(
            r#"{{"messages":[{{"role":"assistant","content":"xy","tool_calls":[]}},{user}],"model":"m"}}"#
        )
    );
    for unchanged in [
        json!({"preserve_reasoning_in_assistant_content": true}),
        json!({"uses_reasoning_parser": false}),
    ] {
        assert!(sent(body, unchanged).starts_with(body.strip_suffix('}').expect("brace")));
    }
    let only = r#"{"messages":[{"role":"assistant","content":"<think>a</think>"}]}"#;
    assert!(
        sent(only, json!({})).contains(r#""content":"","reasoning_content":"a","reasoning":"a""#)
    );
}

#[test]
fn the_developer_role_is_renamed_when_asked() {
    let body = r#"{"messages":[{"role":"developer","content":"x"}]}"#;
    assert_eq!(
        sent(body, json!({})),
        r#"{"messages":[{"role":"developer","content":"x"}],"model":"m"}"#
    );
    assert_eq!(
        sent(body, json!({"replace_developer_role_with_system": true})),
        r#"{"messages":[{"role":"system","content":"x"}],"model":"m"}"#
    );
}

#[test]
fn metadata_lies_over_config_the_request_over_extra_body_and_overrides_over_all() {
    let body = r#"{"messages":[],"temperature":1,"top_logprobs":null,"model":"theirs","metadata":{"chat_template_kwargs":"{\"b\": 2}","extra_body":"{\"temperature\": 9, \"top_k\": 5}"}}"#;
    let more = json!({"chat_template_kwargs": {"a": 1, "b": 1}, "extra_body": {"top_k": 4, "min_p": 0.1}, "sampling_overrides": {"temperature": 0}});
    assert_eq!(
        sent(body, more),
        r#"{"messages":[],"temperature":0,"model":"m","metadata":{"chat_template_kwargs":"{\"b\": 2}","extra_body":"{\"temperature\": 9, \"top_k\": 5}"},"chat_template_kwargs":{"a":1,"b":2},"top_k":5,"min_p":0.1}"#
    );
}

#[test]
fn metadata_that_is_no_object_is_refused() {
    let config = config(json!({}));
    let additions = Additions::new(&config);
    let mut body = Object::parse(r#"{"messages":[],"metadata":{"extra_body":"[1"}}"#);
    let error = upstream::apply(&mut body, &config, &additions).expect_err("metadata");
    assert_eq!(error.to_string(), "metadata.extra_body is not a JSON object");
}

#[test]
fn a_turn_in_which_nothing_was_said_is_told() {
    assert!(upstream::ends_with_nothing_said(
        r#"[{"role":"user","content":"x"},{"role":"assistant","content":""}]"#
    ));
    assert!(upstream::ends_with_nothing_said(
        r#"[{"role":"assistant","content":null,"tool_calls":[]}]"#
    ));
    assert!(!upstream::ends_with_nothing_said(
        r#"[{"role":"assistant","content":null,"tool_calls":[{}]}]"#
    ));
    assert!(!upstream::ends_with_nothing_said(r#"[{"role":"user","content":""}]"#));
}

/// A chat reply with this message, finish reason and usage.
fn completion(message: &str, finish: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion","created":17,"model":"theirs","choices":[{{"index":0,"message":{{"role":"assistant",{message}}},"finish_reason":"{finish}"}}],"usage":{usage}}}"#
    )
}

/// A reply in the Responses dialect, its random ids taken out.
fn response(message: &str, finish: &str, usage: &str, parser: bool) -> serde_json::Value {
    let params = CreateParams::parse(
        br#"{"input":"q","temperature":0.5,"instructions":"i","metadata":{"k":"v"}}"#,
        Urls::Without,
    )
    .expect("params");
    let reply =
        from_chat::responses(completion(message, finish, usage).as_bytes(), &params, "m", parser)
            .expect(message);
    serde_json::from_slice(&reply).expect("json")
}

fn shapes(message: &str) -> Vec<String> {
    let reply = response(message, "stop", "null", true);
    let items = reply["output"].as_array().expect("output").iter().map(|item| {
        match item["type"].as_str() {
            Some("reasoning") => {
                let texts = item["summary"]
                    .as_array()
                    .expect("summary")
                    .iter()
                    .map(|part| part["text"].as_str().expect("text"));
                format!("reasoning:{}", texts.collect::<Vec<_>>().join("|"))
            }
            Some("message") => {
                format!("message:{}", item["content"][0]["text"].as_str().expect("text"))
            }
            Some("function_call") => format!(
                "call:{}:{}:{}:{}",
                item["id"].as_str().expect("id"),
                item["call_id"],
                item["name"],
                item["arguments"]
            ),
            other => panic!("{other:?}"),
        }
    });
    items.collect()
}

#[test]
fn a_message_becomes_items() {
    let table: [(&str, &[&str]); 9] = [
        (r#""content":"hi ""#, &["message:hi "]),
        (r#""content":null"#, &["message:"]),
        (
            r#""content":"<think>a</think>\n x<think>b</think>y""#,
            &["reasoning:a|b", "message:\n xy"],
        ),
        (r#""content":"<think>a</think>""#, &["reasoning:a"]),
        (r#""content":"<think>open""#, &["message:<think>open"]),
        (r#""content":"hi","reasoning_content":"r""#, &["reasoning:r", "message:hi"]),
        (r#""content":"hi","reasoning":"r""#, &["reasoning:r", "message:hi"]),
        (r#""content":null,"reasoning_content":null,"reasoning":null"#, &["message:"]),
        (
            r#""content":null,"reasoning_content":"r","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"u","type":"function","function":{"name":"g","arguments":"{\"k\":1}"}}]"#,
            &["reasoning:r", r#"call:t:"t":"f":"{}""#, r#"call:u:"u":"g":"{\"k\":1}""#],
        ),
    ];
    for (message, items) in table {
        assert_eq!(shapes(message), items, "{message}");
    }
}

#[test]
fn ids_model_date_and_the_request_are_in_the_reply() {
    let reply = response(r#""content":"<think>t</think>x""#, "stop", "null", true);
    let is_id = |value: &serde_json::Value, prefix: &str| {
        value.as_str().is_some_and(|id| id.starts_with(prefix) && id.len() == prefix.len() + 32)
    };
    assert!(
        is_id(&reply["id"], "resp_")
            && is_id(&reply["output"][0]["id"], "rs_")
            && is_id(&reply["output"][1]["id"], "msg_"),
        "{reply}"
    );
    assert_eq!((reply["model"].as_str(), reply["created_at"].as_f64()), (Some("m"), Some(17.0)));
    assert_eq!(
        (&reply["temperature"], &reply["instructions"], &reply["metadata"], &reply["tool_choice"]),
        (&json!(0.5), &json!("i"), &json!({"k": "v"}), &json!("auto"))
    );
}

#[test]
fn finish_reasons_and_usage_are_mapped() {
    let end = |finish: &str| {
        let reply = response(r#""content":"x""#, finish, "null", true);
        (reply["status"].as_str().expect("status").to_owned(), reply["incomplete_details"].clone())
    };
    assert_eq!(end("stop"), ("completed".into(), json!(null)));
    assert_eq!(end("tool_calls"), ("completed".into(), json!(null)));
    assert_eq!(end("length"), ("incomplete".into(), json!({"reason": "max_output_tokens"})));
    assert_eq!(end("content_filter"), ("incomplete".into(), json!({"reason": "content_filter"})));

    let usage = |usage: &str| response(r#""content":"x""#, "stop", usage, true)["usage"].clone();
    assert_eq!(usage("null"), json!(null));
    assert_eq!(
        usage(
            r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cached_input_tokens":1}"#
        ),
        json!({"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": null}, "total_tokens": 3})
    );
}

#[test]
fn without_a_reasoning_parser_tags_stay_and_reasoning_fails() {
    let reply = response(r#""content":"<think>a</think>x""#, "stop", "null", false);
    assert_eq!(reply["output"][0]["content"][0]["text"], "<think>a</think>x");
    let body = Bytes::from(completion(r#""content":"x","reasoning_content":"r""#, "stop", "null"));
    assert!(matches!(
        from_chat::chat(body, false),
        Err(from_chat::FromChatError::UnexpectedReasoning)
    ));
}

#[test]
fn chat_callers_see_think_tags() {
    let plain = Bytes::from(completion(r#""content":"x""#, "stop", "null"));
    assert_eq!(
        from_chat::chat(plain.clone(), true).expect("reply").as_ptr(),
        plain.as_ptr(),
        "nothing to change, nothing copied"
    );
    let body =
        completion(r#""content":"x","reasoning_content":"r","reasoning":"r""#, "stop", "null");
    assert_eq!(
        from_chat::chat(body.into(), true).expect("reply"),
        completion(r#""content":"<think>r</think>x""#, "stop", "null")
    );
}

#[test]
fn a_context_overflow_is_told_from_other_refusals() {
    assert!(from_chat::is_context_overflow(400, b"maximum context length is 4096"));
    assert!(from_chat::is_context_overflow(400, b"max_tokens must be at least 1"));
    assert!(!from_chat::is_context_overflow(400, b"bad tool"));
    assert!(!from_chat::is_context_overflow(500, b"context length"));
    assert_eq!(
        from_chat::made_up("chtcmpl-123", "m", "length", 5),
        r#"{"id":"chtcmpl-123","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null},"logprobs":null,"finish_reason":"length"}]}"#
    );
}

#[test]
fn plain_completions_take_text_only() {
    let request = |body: &'static str| {
        completions::request(Object::parse(body))
            .map(|body| String::from_utf8(body).expect("utf-8"))
    };
    assert_eq!(
        request(
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"}]}],"max_completion_tokens":5,"logprobs":true,"model":"m"}"#
        ),
        Ok(r#"{"model":"m","prompt":"s\n\nu","max_tokens":5,"logprobs":1}"#.to_owned())
    );
    assert_eq!(
        request(r#"{"messages":[{"role":"assistant","content":"x"}]}"#),
        Err(completions::CompletionsError::Messages)
    );
    assert_eq!(
        request(r#"{"messages":[{"role":"user","content":"x"}],"tools":[{}]}"#),
        Err(completions::CompletionsError::Tools)
    );
    assert_eq!(
        request(r#"{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}"#),
        Err(completions::CompletionsError::NotText)
    );
    assert_eq!(
        completions::reply(br#"{"id":"c","object":"text_completion","choices":[{"index":0,"text":"x","finish_reason":"length"}],"usage":null}"#).expect("reply"),
        r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"logprobs":null,"finish_reason":"length"}],"usage":null}"#
    );
}

/// Guarantees: the digests were computed with Python's hashlib.
#[test]
fn a_session_stays_with_its_replica() {
    assert_eq!(["a", "b", "session-1", ""].map(|id| replica_of(id, 7)), [4, 0, 3, 1]);
    assert_eq!(replica_of("a", 1), 0);
}

#[test]
fn settings_that_cannot_be_honoured_are_named() {
    let refused = |more| config(more).unsupported().map(|(key, _)| key);
    assert_eq!(refused(json!({})), None);
    assert_eq!(
        refused(json!({"return_token_id_information": true})),
        Some("return_token_id_information")
    );
    assert_eq!(
        refused(json!({"request_prompt_and_generation_token_ids": true})),
        Some("request_prompt_and_generation_token_ids")
    );
    assert_eq!(refused(json!({"render_chat_template": true})), Some("render_chat_template"));
    assert_eq!(refused(json!({"tokenizer": "t"})), Some("tokenizer"));
    assert_eq!(refused(json!({"base_url": []})), Some("base_url"));
    assert_eq!(
        refused(json!({"is_responses_native": true, "use_completions_api": true})),
        Some("use_completions_api")
    );
    assert!(!format!("{:?}", config(json!({"api_key": "very-secret"}))).contains("very-secret"));
}
