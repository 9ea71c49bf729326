//! `<tool_call><function=N><parameter=P>value</parameter></function></tool_call>`, and Nemotron's `<function=N>{...}</function>`.
//!
//! Templates write a newline after each tag; models leave it out, and now and then `<tool_call>` too.

use crate::answer::{Body, Opening, Place};
use crate::arguments::Arguments;
use crate::form::{self, Form};
use crate::hermes;
use crate::look::{Cursor, Look, is, or};
use crate::parameters::{Parameters, Tags};

pub(crate) const FORM: Form = Form {
    before_name: "<tool_call>\n<function=",
    after_name: ">\n",
    arguments: form::Arguments::Tagged {
        before_name: "<parameter=",
        after_name: ">\n",
        after_value: "\n</parameter>\n",
    },
    after_arguments: "</function>\n</tool_call>",
    triggers: &["<tool_call>", "<function="],
    between: Some("\n"),
};

const TAGS: Tags =
    Tags { call: function_call, key: parameter, closer: "</parameter>", end: "</function>", has_newlines: true };

fn parameter<'a>(at: &mut Cursor<'a>) -> Look<&'a str> {
    at.literal("<parameter=")?;
    let name = at.name(&['<', '>'])?;
    at.literal(">").map(|()| name)
}

pub(crate) fn open(at: &mut Cursor<'_>, place: Place) -> Look<Opening> {
    let mut look = *at;
    let opening = function_call(&mut look);
    if opening.is_ok() {
        *at = look;
    }
    or(opening, || hermes::open(at, place))
}

fn function_call(at: &mut Cursor<'_>) -> Look<Opening> {
    let mut wrapper = *at;
    let is_wrapped = is(wrapper.literal("<tool_call>"))?;
    if is_wrapped {
        wrapper.space()?;
        *at = wrapper;
    }
    at.literal("<function=")?;
    let name = at.name(&['<', '>'])?;
    at.literal(">")?;
    let mut follows = *at;
    follows.space()?;
    let body = match follows.peek()? {
        Some('{') => Body::Arguments(Arguments::Start),
        _ => {
            or(follows.literal("</function>"), || parameter(&mut follows).map(|_| ()))?;
            Body::Parameters(Parameters::new(&TAGS, name))
        }
    };
    Ok(Opening { name: Some(name.into()), body, is_wrapped })
}
