//! Requests of real agents, captured (`tests/fixtures/agents`).

use std::fmt::Write as _;

use super::read_chat;
use crate::tests::turns::{Shown, captured};

#[test]
fn captured_requests_are_read() {
    let (mut text, mut shown) = (String::new(), Shown::default());
    for (name, record) in captured("/v1/chat/completions") {
        let turn = read_chat(&record["body"]).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        writeln!(text, "{name}").unwrap();
        shown.turn(&turn, |_| String::new()).iter().for_each(|line| writeln!(text, "  {line}").unwrap());
    }
    insta::assert_snapshot!(text);
}
