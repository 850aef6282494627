//! Inbound requests, and waits for a place.

use std::sync::Arc;

use gym_server::client::{Client, ClientConfig};
use gym_server::http::{HttpError, Reply, Service};
use gym_server::instance::ServerType;
use gym_telemetry::concurrency::Site;
use gym_telemetry::semconv;
use gym_telemetry::semconv::value::concurrency_site;
use http::{Method, StatusCode};
use lens_otlp::encode::StatusCode as SpanStatus;
use lens_testing::CollectedSpan;
use tokio::sync::{Notify, Semaphore};

use crate::{Point, all_spans, count, points, run, telemetry};

#[tokio::test]
async fn a_wait_for_a_semaphore_is_measured_under_its_site_while_the_group_is_on() {
    static SITE: Site = Site::new(concurrency_site::MODEL_REQUESTS);
    let (_, handle) = telemetry();
    let slots = Semaphore::new(1);
    let waits = || {
        let site = [(semconv::CONCURRENCY_SITE, concurrency_site::MODEL_REQUESTS)];
        count("gym.concurrency.queue_wait_duration_ms", &site)
    };
    drop(SITE.wait(slots.acquire()).await.expect("a place"));
    assert_eq!(waits(), 0, "the group is not in the preset");
    handle.set_span_groups("default,concurrency");
    let held = SITE.wait(slots.acquire()).await.expect("a place");
    let gave_up =
        tokio::time::timeout(std::time::Duration::from_millis(5), SITE.wait(slots.acquire()));
    assert!(gave_up.await.is_err());
    drop(held);
    drop(SITE.wait(slots.acquire()).await.expect("a place"));
    slots.close();
    assert!(SITE.wait(slots.acquire()).await.is_err());
    assert_eq!(waits(), 2, "of those that got a place");
}

#[tokio::test]
async fn a_server_measures_its_requests_by_route_and_those_that_no_route_takes() {
    telemetry();
    let release = Arc::new(Notify::new());
    let mut service = Service::new(ServerType::ResourcesServers, "measured___m".to_owned());
    let held = Arc::clone(&release);
    service.route(Method::POST, "/measured", move |_, body| {
        let held = Arc::clone(&held);
        async move {
            if body == "hold" {
                held.notified().await;
            }
            Ok(Reply::json_bytes("0123456789"))
        }
    });
    service.route(Method::POST, "/measured-broken", |_, _| async {
        Err::<Reply, _>(HttpError::failed("ValueError", "no"))
    });
    let server = run(service, 1);
    let (endpoint, client) = (server.endpoint(), Client::new(ClientConfig::default()));
    let active = || {
        let post = [(semconv::HTTP_REQUEST_METHOD, "POST"), (semconv::URL_SCHEME, "http")];
        count("http.server.active_requests", &post)
    };
    let holding = client.post(&endpoint, "/measured").body("hold").send();
    let looking = async {
        // Other tests of this program have requests under way too, but each of them ends.
        while active() == 0 {
            tokio::task::yield_now().await;
        }
        release.notify_one();
    };
    let (reply, ()) = tokio::join!(holding, looking);
    assert_eq!(reply.expect("a reply").status, 200);
    client.post(&endpoint, "/measured-broken").send().await.expect("a reply");
    client.post(&endpoint, "/unknown").send().await.expect("a reply");
    client.get(&endpoint, "/measured").send().await.expect("a reply");
    drop(server);
    let measured = |more: &[(&str, &str)]| count("http.server.request.duration", more);
    let route = (semconv::HTTP_ROUTE, "/measured");
    let of_route = [
        route,
        (semconv::HTTP_REQUEST_METHOD, "POST"),
        (semconv::URL_SCHEME, "http"),
        (semconv::NETWORK_PROTOCOL_VERSION, "1.1"),
        (semconv::HTTP_RESPONSE_STATUS_CODE, "200"),
    ];
    assert_eq!(measured(&of_route), 1);
    let broken = [(semconv::HTTP_ROUTE, "/measured-broken"), (semconv::ERROR_TYPE, "500")];
    assert_eq!(measured(&broken), 1);
    let without_route = |status: &str| {
        let points = points("http.server.request.duration");
        let is_it = |point: &&Point| {
            !point.attributes.contains_key(semconv::HTTP_ROUTE)
                && point.attributes[semconv::HTTP_RESPONSE_STATUS_CODE] == status
        };
        points.iter().filter(is_it).map(|point| point.count).sum::<u64>()
    };
    assert_eq!((without_route("404"), without_route("405")), (1, 1));
    let bytes = |metric: &str| {
        let points = points(metric);
        let of_route =
            points.iter().find(|p| p.attributes.get(route.0).is_some_and(|r| r == route.1));
        of_route.expect("measured").sum
    };
    assert_eq!(bytes("http.server.request.body.size"), 4.0);
    assert_eq!(bytes("http.server.response.body.size"), 10.0);
}

#[tokio::test]
async fn a_failing_status_is_an_error_of_the_caller_from_400_and_of_the_server_from_500() {
    telemetry();
    let mut service = Service::new(ServerType::ResourcesServers, "statuses___s".to_owned());
    for status in [200, 399, 400, 499, 500] {
        let status = StatusCode::from_u16(status).expect("a status");
        let path = format!("/status-{}", status.as_u16());
        service.route(Method::POST, &path, move |_, _| async move {
            Ok(Reply::json_bytes("{}").status(status))
        });
    }
    let server = run(service, 1);
    let client = Client::new(ClientConfig::default());
    for status in [200, 399, 400, 499, 500] {
        let reply = client.post(&server.endpoint(), &format!("/status-{status}")).send().await;
        assert_eq!(reply.expect("a reply").status, status);
    }
    drop(server);
    let spans = all_spans();
    let told = |kind: &str, status: u16| {
        let path = format!("/status-{status}");
        let is_it = |span: &&CollectedSpan| {
            let ends = [semconv::URL_FULL, semconv::URL_PATH];
            span.kind == kind && ends.iter().any(|key| span.text(key).ends_with(&path))
        };
        let span = spans.iter().find(is_it).expect("a span");
        (span.status == SpanStatus::Error, span.text(semconv::ERROR_TYPE).to_owned())
    };
    let fine = || (false, String::new());
    let error = |status: u16| (true, status.to_string());
    assert_eq!([200, 399].map(|status| told("CLIENT", status)), [fine(), fine()]);
    assert_eq!([400, 499, 500].map(|status| told("CLIENT", status)), [400, 499, 500].map(error));
    assert_eq!([200, 399, 400, 499].map(|s| told("SERVER", s)), [(); 4].map(|()| fine()));
    assert_eq!(told("SERVER", 500), error(500));
}
