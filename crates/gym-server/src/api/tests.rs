//! Expected bytes were captured from FastAPI 0.135 and pydantic 2.13 with the same schema.

use super::*;

fn params(body: &str) -> CreateParams<'_> {
    CreateParams::parse(body.as_bytes(), Urls::Without)
        .unwrap_or_else(|rejection| panic!("{}", text(rejection.body())))
}

fn refused(body: &str) -> String {
    text(CreateParams::parse(body.as_bytes(), Urls::Without).expect_err(body).body())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("utf-8")
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    text(out)
}

#[test]
fn the_full_form_has_every_key_in_the_order_of_the_reference() {
    let body = r#"{"tools": [], "input":"hi" ,"temperature":1,"metadata":null}"#;
    assert_eq!(
        written(|out| params(body).write_full(out)),
        r#"{"background":null,"include":null,"input":"hi","instructions":null,"max_output_tokens":null,"max_tool_calls":null,"metadata":null,"model":null,"parallel_tool_calls":true,"previous_response_id":null,"prompt":null,"reasoning":null,"service_tier":null,"store":null,"temperature":1,"text":null,"tool_choice":"auto","tools":[],"top_logprobs":null,"top_p":null,"truncation":null,"user":null,"stream":null}"#
    );
}

#[test]
fn the_sparse_form_has_what_was_set_nulls_included() {
    let body = r#"{"tools": [], "input":"hi" ,"metadata":null}"#;
    assert_eq!(
        written(|out| params(body).write_sparse(out)),
        r#"{"input":"hi","metadata":null,"tools":[]}"#
    );
    assert_eq!(
        written(|out| params(body).write_sparse_with_input(out, "[1]")),
        r#"{"input":[1],"metadata":null,"tools":[]}"#
    );
}

#[test]
fn a_string_input_becomes_one_user_message() {
    let items = |body: &str| written(|out| params(body).write_input_items(out));
    assert_eq!(
        items(r#"{"input":"a\"b"}"#),
        r#"{"content":"a\"b","role":"user","type":"message"}"#
    );
    assert_eq!(
        items(r#"{"input":[ {"role":"user","content":"x"} ]}"#),
        r#"{"role":"user","content":"x"}"#
    );
    assert_eq!(items(r#"{"input":[]}"#), "");
}

#[test]
fn values_of_another_type_are_coerced_as_pydantic_does() {
    let body = r#"{"input":"a","max_output_tokens":"12","temperature":"1.5","background":"yes","top_logprobs":3.0,"stream":0,"store":1}"#;
    let params = params(body);
    assert!(params.is_coerced());
    assert_eq!(
        written(|out| params.write_sparse(out)),
        r#"{"background":true,"input":"a","max_output_tokens":12,"store":true,"temperature":1.5,"top_logprobs":3.0,"stream":false}"#
    );
}

#[test]
fn every_fault_of_a_body_is_told_in_the_order_of_the_fields() {
    let body = r#"{"input":"a","background":"maybe","instructions":3,"max_output_tokens":"x","temperature":"y","top_logprobs":1.5,"metadata":{"a":1,"b":[2]},"include":"x","parallel_tool_calls":null,"service_tier":"z","tools":{},"truncation":3,"stream":true}"#;
    assert_eq!(
        refused(body),
        r#"{"detail":[{"type":"bool_parsing","loc":["body","background"],"msg":"Input should be a valid boolean, unable to interpret input","input":"maybe"},{"type":"list_type","loc":["body","include"],"msg":"Input should be a valid list","input":"x"},{"type":"string_type","loc":["body","instructions"],"msg":"Input should be a valid string","input":3},{"type":"int_parsing","loc":["body","max_output_tokens"],"msg":"Input should be a valid integer, unable to parse string as an integer","input":"x"},{"type":"string_type","loc":["body","metadata","a"],"msg":"Input should be a valid string","input":1},{"type":"string_type","loc":["body","metadata","b"],"msg":"Input should be a valid string","input":[2]},{"type":"bool_type","loc":["body","parallel_tool_calls"],"msg":"Input should be a valid boolean","input":null},{"type":"literal_error","loc":["body","service_tier"],"msg":"Input should be 'auto', 'default', 'flex', 'scale' or 'priority'","input":"z","ctx":{"expected":"'auto', 'default', 'flex', 'scale' or 'priority'"}},{"type":"float_parsing","loc":["body","temperature"],"msg":"Input should be a valid number, unable to parse string as a number","input":"y"},{"type":"list_type","loc":["body","tools"],"msg":"Input should be a valid list","input":{}},{"type":"int_from_float","loc":["body","top_logprobs"],"msg":"Input should be a valid integer, got a number with a fractional part","input":1.5},{"type":"literal_error","loc":["body","truncation"],"msg":"Input should be 'auto' or 'disabled'","input":3,"ctx":{"expected":"'auto' or 'disabled'"}},{"type":"literal_error","loc":["body","stream"],"msg":"Input should be False","input":true,"ctx":{"expected":"False"}}]}"#
    );
}

#[test]
fn bodies_that_are_no_object_are_told_apart() {
    let table = [
        (
            "",
            r#"{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}"#,
        ),
        (
            "null",
            r#"{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}"#,
        ),
        (
            "{}",
            r#"{"detail":[{"type":"missing","loc":["body","input"],"msg":"Field required","input":{}}]}"#,
        ),
        (
            "[]",
            r#"{"detail":[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":[]}]}"#,
        ),
        (
            "{\"é\" 1}",
            r#"{"detail":[{"type":"json_invalid","loc":["body",5],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting ':' delimiter"}}]}"#,
        ),
        (
            r#"{"input":"a","foo":1,"bar":2}"#,
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","foo"],"msg":"Extra inputs are not permitted","input":1},{"type":"extra_forbidden","loc":["body","bar"],"msg":"Extra inputs are not permitted","input":2}]}"#,
        ),
    ];
    for (body, expected) in table {
        assert_eq!(refused(body), expected, "{body}");
    }
    assert_eq!(
        text(CreateParams::parse(b"\xff", Urls::Without).expect_err("bytes").body()),
        r#"{"detail":"There was an error parsing the body"}"#
    );
}

#[test]
fn model_servers_add_the_url_of_each_error() {
    let rejection =
        CreateParams::parse(br#"{"input":"a","x":1}"#, Urls::With).expect_err("extra key");
    assert!(
        text(rejection.body()).ends_with(
            r#","input":1,"url":"https://errors.pydantic.dev/2.13/v/extra_forbidden"}]}"#
        )
    );
}

#[test]
fn items_need_the_fields_of_their_type() {
    let good = [
        r#"{"role":"user","content":"x"}"#,
        r#"{"type":"message","role":"assistant","id":"m","status":"completed","content":[{"type":"output_text","text":"x","annotations":[]}]}"#,
        r#"{"type":"function_call","arguments":"{}","call_id":"c","name":"n"}"#,
        r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}"#,
        r#"{"type":"reasoning","id":"r","summary":[],"encrypted_content":null,"content":null}"#,
        r#"{"role":"assistant","content":null,"tool_calls":[]}"#,
        r#"{"type":"mcp_call","anything":1}"#,
    ];
    for item in good {
        params(&format!(r#"{{"input":[{item}]}}"#));
    }
    let bad = [
        "1",
        r#"{"type":"message","role":"robot","content":"x"}"#,
        r#"{"type":"message","role":"user"}"#,
        r#"{"type":"function_call","arguments":{},"call_id":"c","name":"n"}"#,
        r#"{"type":"function_call_output","call_id":"c"}"#,
        r#"{"type":"reasoning","summary":[]}"#,
        r#"{"type":"unheard_of"}"#,
    ];
    for item in bad {
        let body = refused(&format!(r#"{{"input":[{item}]}}"#));
        assert!(
            body.starts_with(r#"{"detail":[{"type":"string_type","loc":["body","input","str"]"#),
            "{body}"
        );
        assert!(body.contains(r#","FunctionCallOutput""#), "{body}");
    }
}

#[test]
fn tools_and_tool_choice_are_checked() {
    params(
        r#"{"input":"a","tool_choice":{"type":"function","name":"x"},"tools":[{"type":"function","name":"f","parameters":null,"strict":true}]}"#,
    );
    assert!(refused(r#"{"input":"a","tools":[{"type":"function"}]}"#).contains(
        r#"{"type":"missing","loc":["body","tools",0,"FunctionToolParam","name"],"msg":"Field required","input":{"type":"function"}}"#
    ));
    assert!(refused(r#"{"input":"a","tool_choice":"zz"}"#).contains(
        r#"{"type":"literal_error","loc":["body","tool_choice","literal['none','auto','required']"],"msg":"Input should be 'none', 'auto' or 'required'","input":"zz""#
    ));
}

const REPLY: &str = r#"{"id":"resp_1","object":"response","created_at":1700000000,"model":"m","output":[ {"type":"function_call","arguments":"{\"city\":\"Oslo\"}","call_id":"c1","name":"get_weather"},{"type":"message","id":"m1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[]},{"type":"refusal","refusal":"no"},{"type":"output_text","text":"b\n","annotations":[]}]} ],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"note":{"k":1}}"#;

#[test]
fn a_reply_is_echoed_with_every_field_and_its_extras() {
    let reply = Response::parse(REPLY.as_bytes()).expect("reply");
    let full = written(|out| reply.write_full_with(out, "[]", "null"));
    assert_eq!(
        full,
        r#"{"id":"resp_1","created_at":1700000000.0,"error":null,"incomplete_details":null,"instructions":null,"metadata":null,"model":"m","object":"response","output":[],"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,"background":null,"conversation":null,"max_output_tokens":null,"max_tool_calls":null,"previous_response_id":null,"prompt":null,"prompt_cache_key":null,"reasoning":null,"safety_identifier":null,"service_tier":null,"status":null,"text":null,"top_logprobs":null,"truncation":null,"usage":null,"user":null,"note":{"k":1}}"#
    );
    let again = Response::parse(full.as_bytes()).expect("echo");
    assert_eq!(written(|out| again.write_full(out)), full);
}

#[test]
fn items_of_a_reply_are_read_in_place() {
    let reply = Response::parse(REPLY.as_bytes()).expect("reply");
    let items: Vec<_> = reply.items().collect();
    assert_eq!(items[0].kind, ItemKind::FunctionCall);
    assert_eq!(
        (&*items[0].name, &*items[0].call_id, &*items[0].arguments),
        ("get_weather", "c1", r#"{"city":"Oslo"}"#)
    );
    assert!(items[1].is_assistant_message());
    assert_eq!(output_text(reply.output()), "ab\n");
    assert!(
        reply.output_elements().starts_with(r#"{"type":"function_call""#)
            && reply.output_elements().ends_with('}')
    );
}

#[test]
fn what_is_not_a_reply_is_refused_with_its_reason() {
    let refused = |body: &str| Response::parse(body.as_bytes()).expect_err(body).to_string();
    assert_eq!(refused("<html>"), "the reply is not JSON");
    assert_eq!(refused("[]"), "the reply is not a JSON object");
    assert_eq!(refused("{}"), "the reply has no `id`");
    assert_eq!(
        refused(&REPLY.replace("\"tools\":[]", "\"tools\":{}")),
        "`tools` of the reply has the wrong type"
    );
}

#[test]
fn a_run_request_is_sent_on_in_full_with_its_extras() {
    let body = r#"{"id":7,"responses_create_params":{"input":"x"},"_ng_task_index":0}"#;
    let run = RunRequest::parse(body.as_bytes()).expect("run request");
    let full = written(|out| run.write_full(out));
    assert!(full.starts_with(r#"{"responses_create_params":{"background":null,"#), "{full}");
    assert!(full.ends_with(r#","stream":null},"id":7,"_ng_task_index":0}"#), "{full}");
    assert_eq!(run.extra("id"), Some("7"));

    let refused = |body: &str| text(RunRequest::parse(body.as_bytes()).expect_err(body).body());
    assert_eq!(
        refused(r#"{"a":1}"#),
        r#"{"detail":[{"type":"missing","loc":["body","responses_create_params"],"msg":"Field required","input":{"a":1}}]}"#
    );
    assert_eq!(
        refused(r#"{"responses_create_params":{}}"#),
        r#"{"detail":[{"type":"missing","loc":["body","responses_create_params","input"],"msg":"Field required","input":{}}]}"#
    );
}

#[test]
fn chat_requests_drop_what_is_unknown() {
    let body = br#"{"messages":[{"role":"user","content":"x"}],"top_k":3,"stream":false,"temperature":0.5}"#;
    let request = chat::ChatRequest::parse(body).expect("request");
    assert!(!request.is_verbatim());
    assert_eq!(
        written(|out| request.write_sparse(out)),
        r#"{"messages":[{"role":"user","content":"x"}],"temperature":0.5}"#
    );
    let refused = text(
        chat::ChatRequest::parse(br#"{"messages":[],"stream":1}"#).expect_err("stream").body(),
    );
    assert_eq!(
        refused,
        r#"{"detail":[{"type":"literal_error","loc":["body","stream"],"msg":"Input should be False","input":1,"ctx":{"expected":"False"}}]}"#
    );
}

#[test]
fn chat_usage_is_read_in_the_spellings_of_several_engines() {
    let usage = |usage: &str| {
        let body = format!(r#"{{"choices":[{{"message":{{}}}}],"usage":{usage}}}"#);
        chat::ChatReply::parse(body.as_bytes()).expect("reply").usage()
    };
    let plain = Usage {
        input_tokens: 1,
        cached_tokens: None,
        output_tokens: 2,
        reasoning_tokens: None,
        total_tokens: 3,
    };
    assert_eq!(usage("null"), None);
    assert_eq!(usage(r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}"#), Some(plain));
    assert_eq!(
        usage(
            r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":9},"completion_tokens_details":{"reasoning_tokens":8}}"#
        ),
        Some(Usage { cached_tokens: Some(9), reasoning_tokens: Some(8), ..plain })
    );
    assert_eq!(
        usage(
            r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cache_read_input_tokens":9,"reasoning_output_tokens":8}"#
        ),
        Some(Usage { cached_tokens: Some(9), reasoning_tokens: Some(8), ..plain })
    );
}

/// Guarantees: a request that came in full is copied only when it is written as it would be written.
#[test]
fn a_full_request_is_written_in_full_whatever_its_spacing_and_order() {
    let full_of = |text: &str| {
        let mut out = Vec::new();
        CreateParams::from_object(text).expect(text).write_full(&mut out);
        String::from_utf8(out).expect("text")
    };
    let full = full_of(r#"{"input":[{"role":"user","content":"x"}],"top_p":0.5}"#);
    let other = [
        full.replace(",\"model\"", ", \"model\""),
        full.replace("\"model\":", "\"model\" :"),
        full.replace("\"model\":", "\"model\": "),
        full.replace("{\"background\":", "{ \"background\":"),
        full.replace(",\"stream\":null}", "}"),
        full.replace(",\"stream\":null}", ",\"stream\":null }"),
        full.replace("\"model\":null,", "").replace("{\"b", "{\"model\":null,\"b"),
        full.replace("\"model\":null,", "\"model\":\"m\",")
            .replace("\"stream\":null}", "\"stream\":null,\"model\":null}"),
        full.replace("\"model\"", "\"mod\\u0065l\""),
    ];
    for text in other.iter().chain([&full]) {
        assert_eq!(full_of(text), full, "{text}");
    }
}
