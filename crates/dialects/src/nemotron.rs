//! `<TOOLCALL>[{"name": N, "arguments": {...}}, ...]</TOOLCALL>`: a list of calls as JSON.

use crate::answer::{Opening, Place};
use crate::envelope::Envelope;
use crate::form::{Arguments, Form};
use crate::look::{Cursor, Look};

pub(crate) const FORM: Form = Form {
    before_name: "<TOOLCALL>[{\"name\": \"",
    after_name: "\", \"arguments\": ",
    arguments: Arguments::Json,
    after_arguments: "}]</TOOLCALL>",
    triggers: &["<TOOLCALL>"],
    between: Some("\n"),
};

pub(crate) fn open(at: &mut Cursor<'_>, place: Place) -> Look<Opening> {
    let before = match place {
        Place::InWrapper => ",",
        _ => {
            at.literal("<TOOLCALL>")?;
            at.space()?;
            "["
        }
    };
    if at.peek()?.is_some_and(|c| before.contains(c)) {
        at.take(1);
        at.space()?;
    }
    Envelope::open(at, false)
}
