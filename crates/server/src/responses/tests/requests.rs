//! Requests of real agents, captured (`tests/fixtures/agents`).

use std::fmt::Write as _;

use super::{ResponsesRequest, request};
use crate::tests::turns::{Shown, captured};

#[test]
fn captured_requests_are_read() {
    let (mut text, mut shown) = (String::new(), Shown::default());
    for (name, record) in captured("/v1/responses") {
        writeln!(text, "{name}\n{}", show(&request(&record["body"]), &mut shown)).unwrap();
    }
    insta::assert_snapshot!(text);
}

/// A request in few lines.
fn show(request: &ResponsesRequest, shown: &mut Shown) -> String {
    let ResponsesRequest { model, stream, previous_response_id, store, instructed, turn, offers, echo: _ } = request;
    let head =
        format!("{model:?} stream {stream} store {store} instructed {instructed} previous {previous_response_id:?}");
    let namespace = |name: &str| {
        let namespace = offers.called(name).and_then(|offer| offer.namespace.as_ref());
        namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default()
    };
    [head].into_iter().chain(shown.turn(turn, namespace)).map(|line| format!("  {line}\n")).collect()
}
