//! Whether a tool must be called, and which may: what the APIs share.

use kapitsa::turn::{Tool, ToolChoice};

use crate::error::{ApiError, clip};

/// The choice by its name in the APIs of OpenAI.
pub(crate) fn by_mode(place: &str, mode: &str) -> Result<ToolChoice, ApiError> {
    match mode {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => {
            let what = format!("is `{}`, expected none, auto, required or a tool", clip(other));
            Err(ApiError::place(place, what))
        }
    }
}

/// A choice among a part of the tools. The others leave the list, unless one is forced by name: a list that does not change
/// keeps the prompt as it was.
pub(crate) fn among(choice: ToolChoice, mut allowed: Vec<String>, tools: &mut Vec<Tool>) -> ToolChoice {
    if choice == ToolChoice::Required && allowed.len() == 1 {
        return ToolChoice::Named(allowed.remove(0));
    }
    tools.retain(|tool| allowed.contains(&tool.name));
    choice
}

/// The choice, if the tools that it asks for are there.
pub(crate) fn checked(choice: ToolChoice, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    let wrong = |what: &str| Err(ApiError::place("tool_choice", what));
    match &choice {
        ToolChoice::Required if tools.is_empty() => wrong("asks for a call, but there is no tool that can be offered"),
        ToolChoice::Named(name) if tools.iter().all(|tool| tool.name != *name) => {
            wrong(&format!("names `{}`, which is none of the tools", clip(name)))
        }
        _ => Ok(choice),
    }
}
