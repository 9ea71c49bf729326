//! The whole answer is `{"name": N, "parameters": {...}}` or a list of such, maybe in a code fence.

use crate::answer::{Opening, Place};
use crate::envelope::Envelope;
use crate::form::{Arguments, Form};
use crate::look::{Cursor, Look, Miss, is};

pub(crate) const FORM: Form = Form {
    before_name: "{\"name\": \"",
    after_name: "\", \"parameters\": ",
    arguments: Arguments::Json,
    after_arguments: "}",
    triggers: &[],
    between: None,
};

pub(crate) fn open(at: &mut Cursor<'_>, place: Place) -> Look<Opening> {
    match place {
        Place::Start => {
            if at.peek()? == Some('`') {
                at.literal("```")?;
                is(at.literal("json"))?;
                at.space()?;
            }
            if at.peek()? == Some('[') {
                at.take(1);
                at.space()?;
            }
        }
        Place::InWrapper => {
            if matches!(at.peek()?, Some(',' | ';')) {
                at.take(1);
                at.space()?;
            }
        }
        Place::AfterCall | Place::Text => return Err(Miss::Other),
    }
    Envelope::open(at, true)
}
