//! A store as what is received into.

use std::sync::Arc;

use lens_observe::{Intake, Keeper, Receiver};
use lens_store::ids::TraceId;
use lens_store::store::{Options, Store};

use crate::support::{EXPORT, PROTOBUF, call, framed, grpc, gzip, http, options, request, send};

#[test]
fn what_was_acknowledged_is_found_at_once_and_after_the_store_was_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        || Arc::new(Keeper::new(Store::open(folder.path(), Options::default()).expect("a store")));
    let store = open();
    let receiver = Receiver::start(options(), Arc::clone(&store) as Arc<dyn Intake>).unwrap();
    let headers = format!("{PROTOBUF}content-encoding: gzip\r\n");
    let answer = send(http(&receiver), "POST", "/v1/traces", &headers, &gzip(&request(3)));
    assert_eq!(answer.status, 200);
    let reply = call(grpc(&receiver), EXPORT, &[], framed(0, &request(5)));
    assert_eq!(reply.code, "0");
    let broken = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, b"\x0a\xff");
    assert_eq!(broken.status, 400);
    let id = TraceId::from_bytes(&[7; 16]).unwrap();
    // The spans of the first request are among those of the second, and count once.
    assert_eq!(store.store().snapshot().trace(id).unwrap().len(), 5);
    receiver.stop();
    drop(store);
    assert_eq!(open().store().snapshot().trace(id).unwrap().len(), 5);
}
