//! Where a receiver listens, and where it refuses to.

use std::net::TcpListener;
use std::sync::Arc;

use lens_observe::receiver::{Options, StartError, Token};
use lens_observe::{Intake, Receiver};
use lens_testing::free_port;

use crate::support::{EXPORT, Keeper, PROTOBUF, call, framed, options, request, send, start};

fn start_error(options: Options) -> StartError {
    let intake: Arc<dyn Intake> = Arc::new(Keeper::default());
    Receiver::start(options, intake).map(|_| ()).expect_err("it does not start")
}

#[test]
fn several_addresses_of_both_families_are_listened_on() {
    let listen = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let options = Options {
        grpc: listen(&["[::1]:0", "http://127.0.0.1:0"]),
        http: listen(&["http://[::1]:0/", "localhost:0"]),
        ..options()
    };
    let (receiver, keeper) = start(options);
    assert!(receiver.grpc_addresses()[0].is_ipv6() && receiver.http_addresses()[0].is_ipv6());
    let mut sent = 0;
    for address in receiver.grpc_addresses() {
        assert_ne!(address.port(), 0);
        let reply = call(*address, EXPORT, &[], framed(0, &request(1)));
        assert_eq!(reply.code, "0", "{address}");
        sent += 1;
    }
    for address in receiver.http_addresses() {
        let answer = send(*address, "POST", "/v1/traces", PROTOBUF, &request(1));
        assert_eq!(answer.status, 200, "{address}");
        sent += 1;
    }
    assert!(sent >= 4);
    assert_eq!(keeper.span_count(), sent);
}

#[test]
fn a_port_in_use_is_named_with_the_option_that_changes_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = start_error(Options { http: vec![address.into()], ..options() });
    assert!(matches!(error, StartError::InUse { .. }));
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("--listen-http"), "{text}");
    let error = start_error(Options { grpc: vec![address.into()], ..options() });
    assert!(error.to_string().contains("--listen-grpc"), "{error}");
}

#[test]
fn other_hosts_are_listened_to_only_with_a_token_or_when_told_so() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let open = Options { http: vec![address.parse().unwrap()], ..options() };
        let error = start_error(open.clone());
        assert!(matches!(error, StartError::Remote { .. }), "{error}");
        assert!(error.to_string().contains("--allow-unauthenticated-remote"), "{error}");
        drop(start(Options { token: Token::new("x"), ..open.clone() }));
        drop(start(Options { allow_unauthenticated_remote: true, ..open }));
    }
}

#[test]
fn everything_of_both_families_can_be_listened_on_at_one_port() {
    let port = free_port();
    let both = ["0.0.0.0", "[::]"].map(|host| format!("{host}:{port}").parse().unwrap());
    let options = Options { http: both.to_vec(), allow_unauthenticated_remote: true, ..options() };
    let (receiver, _) = start(options);
    assert_eq!(receiver.http_addresses().len(), 2);
    for host in ["127.0.0.1", "[::1]"] {
        let address = format!("{host}:{port}").parse().unwrap();
        assert_eq!(send(address, "POST", "/v1/logs", PROTOBUF, b"").status, 200, "{host}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_said_so() {
    let options = Options { grpc: vec!["no-such-host.invalid:1".parse().unwrap()], ..options() };
    let error = start_error(options);
    assert!(error.to_string().contains("no-such-host.invalid:1 (from --listen-grpc)"), "{error}");
}

#[test]
fn tokens_are_never_printed() {
    let token = Token::new("s3cret");
    let options = Options { token, ..options() };
    assert!(!format!("{options:?}").contains("s3cret"));
    assert!(Token::new("two words").is_none() && Token::new(" ").is_none());
}
