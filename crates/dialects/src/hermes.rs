//! `<tool_call>\n{"name": N, "arguments": {...}}\n</tool_call>`.

use crate::answer::{Opening, Place};
use crate::envelope::Envelope;
use crate::form::{Arguments, Form};
use crate::look::{Cursor, Look};

pub(crate) const FORM: Form = Form {
    before_name: "<tool_call>\n{\"name\": \"",
    after_name: "\", \"arguments\": ",
    arguments: Arguments::Json,
    after_arguments: "}\n</tool_call>",
    triggers: &["<tool_call>"],
    between: Some("\n"),
};

pub(crate) fn open(at: &mut Cursor<'_>, place: Place) -> Look<Opening> {
    match place {
        // Several calls within one pair of tags.
        Place::InWrapper if at.peek()? == Some('{') => {}
        _ => {
            at.literal("<tool_call>")?;
            at.space()?;
        }
    }
    Envelope::open(at, false)
}
