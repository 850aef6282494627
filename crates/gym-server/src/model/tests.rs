use super::*;

fn prepared(dialect: Dialect, body: &str) -> Prepared {
    prepare(dialect, &Bytes::copy_from_slice(body.as_bytes())).expect(body)
}

fn finished(prepared: &Prepared, reply: &str) -> String {
    let finished = finish(prepared, Bytes::copy_from_slice(reply.as_bytes())).expect(reply);
    String::from_utf8(finished.body.to_vec()).expect("utf-8")
}

fn refusal(dialect: Dialect, body: &str) -> String {
    match prepare(dialect, &Bytes::copy_from_slice(body.as_bytes())) {
        Err(PrepareError::Rejected(rejection)) => {
            String::from_utf8(rejection.body()).expect("utf-8")
        }
        other => panic!("{body}: {other:?}"),
    }
}

fn body(prepared: &Prepared) -> &str {
    std::str::from_utf8(&prepared.body).expect("utf-8")
}

/// Guarantees: what telemetry says was asked for is what the backend is asked for, whatever became of the body.
#[test]
fn the_model_that_is_asked_for_is_that_of_the_backends_body() {
    use Dialect::{Chat, Messages, Responses};
    for (dialect, request) in [
        (Responses, r#"{"input":"x","model":"m"}"#),
        (Responses, r#"{"model":"first","input":"x","model": "last"}"#),
        (Responses, r#"{"input":"x","model":"m","temperature":"1"}"#),
        (Responses, r#"{"input":"x","model":"m","stream":true}"#),
        (Responses, r#"{"input":"x","model":null}"#),
        (Responses, r#"{"input":"x"}"#),
        (Chat, r#"{"messages":[],"model":"m\u00e9"}"#),
        (Chat, r#"{"messages":[],"model":"m","stream":true,"unknown":1}"#),
        (Chat, r#"{"messages":[]}"#),
        (Messages, r#"{"model":"m","messages":[]}"#),
    ] {
        let prepared = prepared(dialect, request);
        let of_body = json::member(body(&prepared), "model").filter(|raw| *raw != "null");
        assert_eq!(prepared.asked_model, of_body.unwrap_or_default(), "{request}");
    }
}

#[test]
fn a_plain_request_is_handed_on_without_a_copy() {
    let request = Bytes::from_static(br#"{"input": "x", "stream": false}"#);
    let prepared = prepare(Dialect::Responses, &request).expect("request");
    assert_eq!((prepared.body.as_ptr(), prepared.stream), (request.as_ptr(), false));
    let reply = Bytes::from_static(b"{}");
    let finished = finish(&prepared, reply.clone()).expect("reply");
    assert_eq!(
        (finished.body.as_ptr(), finished.content_type),
        (reply.as_ptr(), "application/json")
    );

    let request = Bytes::from_static(br#"{"messages":[]}"#);
    assert_eq!(prepare(Dialect::Chat, &request).expect("request").body.as_ptr(), request.as_ptr());
}

#[test]
fn what_asks_for_a_stream_differs_by_dialect() {
    for (stream, expected) in [
        ("true", true),
        ("1", true),
        ("\"yes\"", true),
        ("null", false),
        ("0", false),
        ("false", false),
    ] {
        let request = format!(r#"{{"input":"x","stream":{stream}}}"#);
        assert_eq!(prepared(Dialect::Responses, &request).stream, expected, "{stream}");
    }
    assert!(prepared(Dialect::Chat, r#"{"messages":[],"stream":true}"#).stream);
    assert!(
        refusal(Dialect::Chat, r#"{"messages":[],"stream":"yes"}"#)
            .contains(r#""loc":["body","stream"]"#)
    );
    assert!(prepared(Dialect::Messages, r#"{"messages":[],"stream":1}"#).stream);
}

#[test]
fn only_the_responses_dialect_refuses_unknown_keys_and_tells_urls() {
    let refused = refusal(Dialect::Responses, r#"{"input":"x","top_k":1}"#);
    assert!(
        refused.contains("\"url\":\"https://errors.pydantic.dev/2.13/v/extra_forbidden\""),
        "{refused}"
    );
    assert_eq!(
        body(&prepared(Dialect::Chat, r#"{"messages":[],"top_k":1}"#)),
        r#"{"messages":[]}"#
    );
    let refused = refusal(Dialect::Chat, r#"{"temperature":1}"#);
    assert!(
        refused.contains(r#""loc":["body","messages"]"#) && !refused.contains("url"),
        "{refused}"
    );
}

#[test]
fn a_streaming_request_is_made_acceptable() {
    let request = r#"{"stream":true,"client_metadata":{},"instructions":"Be brief.","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be kind."}]},{"type":"additional_tools","tools":[{"type":"function","name":"late","parameters":{}}]},{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"add","namespace":"calc","arguments":"{}"},{"type":"unheard_of"}],"tools":[{"type":"namespace","name":"calc","tools":[{"type":"function","name":"add","parameters":{}}]},{"type":"function","parameters":{}}]}"#;
    let prepared = prepared(Dialect::Responses, request);
    assert_eq!(
        body(&prepared),
        r#"{"instructions":"Be brief.\n\nBe kind.","input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"calc__add","arguments":"{}"}],"tools":[{"type":"function","name":"calc__add","parameters":{}},{"type":"function","name":"late","parameters":{}}]}"#
    );
    let events = finished(
        &prepared,
        &reply(
            r#"{"type":"function_call","call_id":"d","name":"calc__add","arguments":"{}"}"#,
            "null",
        ),
    );
    assert!(events.contains(r#""item": {"type": "function_call", "call_id": "d", "name": "add", "arguments": "{}", "namespace": "calc"}"#), "{events}");
    assert!(!events.contains("calc__add"), "{events}");
}

#[test]
fn a_streaming_request_that_stays_wrong_is_refused_before_the_stream() {
    assert!(
        refusal(Dialect::Responses, r#"{"stream":true}"#)
            .contains(r#""type":"missing","loc":["body","input"]"#)
    );
}

fn reply(items: &str, details: &str) -> String {
    format!(
        r#"{{"id":"resp_ab","object":"response","created_at":1700000000.0,"model":"m","status":"completed","incomplete_details":{details},"output":[{items}],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"usage":{{"input_tokens":5,"input_tokens_details":{{"cached_tokens":null}},"output_tokens":7,"output_tokens_details":{{"reasoning_tokens":null}},"total_tokens":12}}}}"#
    )
}

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"é","annotations":[]}]}"#;

#[test]
fn responses_are_replayed_as_whole_items() {
    let prepared = prepared(Dialect::Responses, r#"{"input":"x","stream":true}"#);
    let events = finished(&prepared, &reply(MESSAGE, "null"));
    let head = r#"{"id": "resp_ab", "object": "response", "created_at": 1700000000.0, "model": "m", "status": "#;
    let tail = r#""parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": null}, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": null}, "total_tokens": 12}}"#;
    let item = r#"{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "\u00e9", "annotations": []}]}"#;
    assert_eq!(
        events,
        format!(
            "event: response.created\ndata: {{\"type\": \"response.created\", \"response\": {head}\"in_progress\", \"incomplete_details\": null, \"output\": [], {tail}}}\n\n\
             event: response.output_item.done\ndata: {{\"type\": \"response.output_item.done\", \"output_index\": 0, \"item\": {item}}}\n\n\
             event: response.completed\ndata: {{\"type\": \"response.completed\", \"response\": {head}\"completed\", \"incomplete_details\": null, \"output\": [{item}], {tail}}}\n\n"
        )
    );
}

#[test]
fn a_failing_backend_is_told_inside_a_responses_stream_only() {
    let streaming = prepared(Dialect::Responses, r#"{"input":"x","model":"m","stream":true}"#);
    let failed = failed_stream(&streaming, "it's \"down\"", "00ff", 1.5).expect("stream");
    assert_eq!(failed.content_type, "text/event-stream; charset=utf-8");
    assert_eq!(
        std::str::from_utf8(&failed.body).expect("utf-8"),
        "event: response.created\n\
         data: {\"type\": \"response.created\", \"response\": {\"id\": \"resp_00ff\", \"object\": \"response\", \"created_at\": 1.5, \"status\": \"in_progress\", \"error\": null, \"model\": \"m\", \"output\": [], \"parallel_tool_calls\": true, \"tool_choice\": \"auto\", \"tools\": []}}\n\n\
         event: response.failed\n\
         data: {\"type\": \"response.failed\", \"response\": {\"id\": \"resp_00ff\", \"object\": \"response\", \"created_at\": 1.5, \"status\": \"failed\", \"error\": {\"code\": \"server_error\", \"message\": \"it's \\\"down\\\"\"}, \"model\": \"m\", \"output\": [], \"parallel_tool_calls\": true, \"tool_choice\": \"auto\", \"tools\": []}}\n\n"
    );
    for other in [
        prepared(Dialect::Responses, r#"{"input":"x"}"#),
        prepared(Dialect::Chat, r#"{"messages":[],"stream":true}"#),
    ] {
        assert!(failed_stream(&other, "down", "", 0.0).is_none());
    }
}

#[test]
fn chat_replies_are_replayed_as_chunks() {
    let request = r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    let prepared = prepared(Dialect::Chat, request);
    assert_eq!(body(&prepared), r#"{"messages":[]}"#);
    let reply = r#"{"id":"c1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","reasoning_content":"r","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"total_tokens":3}}"#;
    let head = r#"{"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": ["#;
    let expected: String = [
        r#"{"index": 0, "delta": {"role": "assistant"}, "finish_reason": null}]}"#,
        r#"{"index": 0, "delta": {"reasoning_content": "r"}, "finish_reason": null}]}"#,
        r#"{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}"#,
        r#"{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": null}]}"#,
        r#"{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}"#,
        r#"], "usage": {"total_tokens": 3}}"#,
    ]
    .iter()
    .map(|chunk| format!("data: {head}{chunk}\n\n"))
    .collect();
    assert_eq!(finished(&prepared, reply), expected + "data: [DONE]\n\n");
}

#[test]
fn messages_requests_become_responses_requests() {
    let request = r#"{"model":"m","max_tokens":9,"temperature":0.5,"top_p":1,"metadata":{"user_id":"u"},"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g","description":"d"}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"x"},{"type":"tool_use","id":"c","name":"f","input":{"k":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]},{"type":"text","text":"and"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}}]}]}"#;
    assert_eq!(
        body(&prepared(Dialect::Messages, request)),
        concat!(
            r#"{"input":[{"role":"user","content":"hi","type":"message"},"#,
            r#"{"type":"reasoning","id":"rs_0","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"s"},"#,
            r#"{"role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]}],"type":"message"},"#,
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"k\":1}"},"#,
            r#"{"type":"function_call_output","call_id":"c","output":"1\n2"},"#,
            r#"{"role":"user","content":[{"type":"input_text","text":"and"},{"type":"input_image","image_url":"data:image/png;base64,QQ==","detail":"auto"}],"type":"message"}],"#,
            r#""instructions":"a\nb","max_output_tokens":9,"temperature":0.5,"top_p":1,"model":"m","#,
            r#""tools":[{"type":"function","name":"f","description":null,"parameters":{"type":"object"},"strict":false},{"type":"function","name":"g","description":"d","parameters":{"type":"object","properties":{}},"strict":false}],"#,
            r#""tool_choice":"required"}"#
        )
    );
}

#[test]
fn messages_blocks_that_cannot_be_mapped_fail() {
    for block in
        [r#"{"type":"document"}"#, r#"{"type":"image","source":{"type":"url","url":"http://x"}}"#]
    {
        let request = format!(r#"{{"messages":[{{"role":"user","content":[{block}]}}]}}"#);
        let error = prepare(Dialect::Messages, &request.into()).expect_err(block);
        assert!(matches!(error, PrepareError::Unsupported(_)), "{error}");
    }
    assert!(refusal(Dialect::Messages, "[]").contains(r#""type":"dict_type","loc":["body"]"#));
}

const CALL: &str = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"k\": 1}"}"#;
const REASONING: &str = r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}],"content":null}"#;

#[test]
fn responses_replies_become_messages_replies() {
    let prepared = prepared(Dialect::Messages, r#"{"model":"asked","messages":[]}"#);
    assert_eq!(
        finished(&prepared, &reply(&[REASONING, MESSAGE, CALL].join(","), "null")),
        r#"{"id":"msg_ab","type":"message","role":"assistant","model":"asked","content":[{"type":"thinking","thinking":"t","signature":""},{"type":"text","text":"é"},{"type":"tool_use","id":"c","name":"f","input":{"k":1}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}}"#
    );
    let stop = |items: &str, details: &str| {
        let body: serde_json::Value =
            serde_json::from_str(&finished(&prepared, &reply(items, details))).expect("json");
        body["stop_reason"].as_str().expect("reason").to_owned()
    };
    assert_eq!(stop(MESSAGE, "null"), "end_turn");
    assert_eq!(stop(CALL, r#"{"reason":"max_output_tokens"}"#), "max_tokens");
    assert_eq!(stop(MESSAGE, r#"{"reason":"content_filter"}"#), "refusal");
}

#[test]
fn messages_replies_are_replayed_block_by_block() {
    let prepared = prepared(Dialect::Messages, r#"{"model":"asked","messages":[],"stream":true}"#);
    let events = finished(&prepared, &reply(&[MESSAGE, CALL].join(","), "null"));
    assert_eq!(
        events,
        concat!(
            "event: message_start\ndata: {\"type\": \"message_start\", \"message\": {\"id\": \"msg_ab\", \"type\": \"message\", \"role\": \"assistant\", \"model\": \"asked\", \"content\": [], \"stop_reason\": null, \"stop_sequence\": null, \"usage\": {\"input_tokens\": 5, \"output_tokens\": 0}}}\n\n",
            "event: content_block_start\ndata: {\"type\": \"content_block_start\", \"index\": 0, \"content_block\": {\"type\": \"text\", \"text\": \"\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\": \"content_block_delta\", \"index\": 0, \"delta\": {\"type\": \"text_delta\", \"text\": \"\\u00e9\"}}\n\n",
            "event: content_block_stop\ndata: {\"type\": \"content_block_stop\", \"index\": 0}\n\n",
            "event: content_block_start\ndata: {\"type\": \"content_block_start\", \"index\": 1, \"content_block\": {\"type\": \"tool_use\", \"id\": \"c\", \"name\": \"f\", \"input\": {}}}\n\n",
            "event: content_block_delta\ndata: {\"type\": \"content_block_delta\", \"index\": 1, \"delta\": {\"type\": \"input_json_delta\", \"partial_json\": \"{\\\"k\\\": 1}\"}}\n\n",
            "event: content_block_stop\ndata: {\"type\": \"content_block_stop\", \"index\": 1}\n\n",
            "event: message_delta\ndata: {\"type\": \"message_delta\", \"delta\": {\"stop_reason\": \"tool_use\", \"stop_sequence\": null}, \"usage\": {\"output_tokens\": 7}}\n\n",
            "event: message_stop\ndata: {\"type\": \"message_stop\"}\n\n",
        )
    );
}
