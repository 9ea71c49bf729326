//! `<tool_call>N\n<arg_key>K</arg_key>\n<arg_value>V</arg_value></tool_call>`.

use crate::answer::{Body, Opening};
use crate::form::{Arguments, Form};
use crate::look::{Cursor, Look, or};
use crate::parameters::{Parameters, Tags};

pub(crate) const FORM: Form = Form {
    before_name: "<tool_call>",
    after_name: "\n",
    arguments: Arguments::Tagged {
        before_name: "<arg_key>",
        after_name: "</arg_key>\n<arg_value>",
        after_value: "</arg_value>\n",
    },
    after_arguments: "</tool_call>",
    triggers: &["<tool_call>"],
    between: Some("\n"),
};

const TAGS: Tags = Tags { call: open, key, closer: "</arg_value>", end: "</tool_call>", has_newlines: false };

fn key<'a>(at: &mut Cursor<'a>) -> Look<&'a str> {
    at.literal("<arg_key>")?;
    let key = at.name(&['<'])?;
    at.literal("</arg_key>")?;
    at.space()?;
    at.literal("<arg_value>").map(|()| key)
}

pub(crate) fn open(at: &mut Cursor<'_>) -> Look<Opening> {
    at.literal("<tool_call>")?;
    at.space()?;
    let name = at.name(&['<', '{', '"', '\'', '`', ' '])?;
    let mut follows = *at;
    follows.space()?;
    or(follows.literal("</tool_call>"), || key(&mut follows).map(|_| ()))?;
    Ok(Opening { name: Some(name.into()), body: Body::Parameters(Parameters::new(&TAGS, name)), is_wrapped: false })
}
