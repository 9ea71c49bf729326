//! Captured sessions of agents (`tests/fixtures/agents`) as prompts: each goes on from the one before, or it is said here why not.
//!
//! The snapshot has a line for each pair of turns and each template. What must hold is asserted beside it.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, OnceLock};

use kapitsa::turn::{Difference, ToolChoice, TurnPrompt, TurnRequest, difference};
use kapitsa::{Llm, Message, OpenOptions};
use kapitsa_testkit::{fixture, script::Script, tiny};
use serde_json::Value;

use crate::openai::read_chat;
use crate::{anthropic, responses};

/// Templates, and what each opens an answer with.
const TEMPLATES: [(&str, &str); 7] = [
    ("qwen2.5-like", "<|im_start|>assistant\n"),
    ("qwen3-like", "<|im_start|>assistant\n"),
    ("qwen3-coder-like", "<|im_start|>assistant\n"),
    ("qwen3.5-like", "<|im_start|>assistant\n<think>\n"),
    ("glm-like", "<|assistant|>\n"),
    ("llama-3.1-like", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    ("smollm2-like", "<|im_start|>assistant\n"),
];

/// Templates that write calls as JSON, as parameters, and as text.
const THREE: [&str; 3] = ["qwen2.5-like", "qwen3.5-like", "smollm2-like"];

/// Requests of one conversation, in order. What is not here is a conversation of its own: titles, commit messages.
const SESSIONS: [(&str, &[&str]); 7] = [
    ("claude-code", &["requests/03", "requests/04", "requests/05"]),
    ("codex", &["requests/01", "requests/02", "requests/03"]),
    ("copilot", &["requests/01", "requests/02", "requests/03"]),
    ("opencode", &["requests/02", "requests/03", "requests/04"]),
    ("pi", &["requests/01", "requests/02", "requests/03"]),
    ("hermes", &["requests/17", "requests/24", "requests/25", "requests/26", "requests/27"]),
    ("goose", &["requests/02", "requests/03", "requests/04"]),
];

/// Turns of other runs that go on from an earlier one: what tools and the user said is put in from that run.
const RESUMED: [(&str, &str, &str); 2] = [
    ("copilot", "requests/03", "variants/resumed-session-turn"),
    ("codex", "requests/03", "variants/resumed-second-turn"),
];

/// Single requests with a history: their last turn goes on from the one before.
const HISTORIES: [&str; 25] = [
    "claude-code/variants/broken-json-arguments",
    "claude-code/variants/compaction",
    "claude-code/variants/parallel-tool-results",
    "claude-code/variants/resume-after-max-tokens",
    "claude-code/variants/subagent-after-nested-agent",
    "claude-code/variants/thinking-replayed",
    "codex/variants/custom-tool-output",
    "codex/variants/parallel-tool-outputs",
    "codex/variants/reasoning-replayed",
    "codex/variants/resumed-second-turn",
    "copilot/variants/messages-api-thinking-replayed",
    "copilot/variants/reasoning-replayed",
    "copilot/variants/resume-after-length",
    "copilot/variants/resumed-session-turn",
    "goose/variants/messages-api",
    "goose/variants/parallel-tool-results",
    "goose/variants/reasoning-replayed",
    "hermes/variants/parallel-tool-results",
    "opencode/variants/broken-json-arguments",
    "opencode/variants/messages-api",
    "opencode/variants/responses-api",
    "pi/variants/messages-api",
    "pi/variants/parallel-tool-results",
    "pi/variants/reasoning-replayed",
    "pi/variants/responses-api",
];

/// Why pairs part.
const NEW_QUESTION: &str =
    "the user speaks again, and the template leaves the thinking of turns before out, its marks included";

/// Pairs that part, with the templates, for a reason.
const EXCEPTIONS: [(&str, &[&str], &str); 10] = [
    ("hermes/requests/25 to requests/26", &["qwen3.5-like"], NEW_QUESTION),
    ("copilot/requests/03 to variants/resumed-session-turn", &["qwen3.5-like"], NEW_QUESTION),
    ("codex/requests/03 to variants/resumed-second-turn", &["qwen3.5-like"], NEW_QUESTION),
    ("pi/variants/reasoning-replayed, another question", &["qwen3-like", "qwen3.5-like", "glm-like"], NEW_QUESTION),
    ("codex/variants/reasoning-replayed, another question", &["qwen3-like", "qwen3.5-like", "glm-like"], NEW_QUESTION),
    ("copilot/variants/compaction, from the turn before", &["qwen3.5-like"], NEW_QUESTION),
    ("claude-code/variants/resume-after-max-tokens, the last turn", &["qwen3.5-like"], NEW_QUESTION),
    ("codex/variants/resumed-second-turn, the last turn", &["qwen3.5-like"], NEW_QUESTION),
    ("copilot/variants/resume-after-length, the last turn", &["qwen3.5-like"], NEW_QUESTION),
    ("copilot/variants/resumed-session-turn, the last turn", &["qwen3.5-like"], NEW_QUESTION),
];

/// Two turns, one after the other.
struct Pair {
    name: String,
    old: TurnRequest,
    new: TurnRequest,
}

fn body(name: &str) -> (String, Value) {
    let text = fs::read_to_string(fixture(&format!("agents/{name}.json"))).unwrap();
    let mut record: Value = serde_json::from_str(&text).unwrap();
    (record["path"].as_str().unwrap().to_owned(), record["body"].take())
}

fn read(path: &str, body: &Value) -> TurnRequest {
    match path.trim_start_matches("/v1").split('?').next().unwrap() {
        "/chat/completions" => read_chat(body).unwrap(),
        "/responses" => responses::read(body).unwrap().turn,
        "/messages" => anthropic::request::read(body).unwrap().turn,
        path => panic!("{path}"),
    }
}

fn captured(name: &str) -> TurnRequest {
    let (path, body) = body(name);
    read(&path, &body)
}

/// The later request with what the earlier one has of the system, the user and tools: only what the client does to the turns of the
/// assistant is left.
fn resumed(old: &TurnRequest, mut new: TurnRequest) -> TurnRequest {
    for (new, old) in new.messages.iter_mut().zip(&old.messages) {
        assert_eq!(new.role, old.role);
        if new.role != "assistant" {
            new.content = old.content.clone();
        }
    }
    new
}

fn pairs() -> Vec<Pair> {
    let mut pairs = vec![];
    for (client, requests) in SESSIONS {
        for two in requests.windows(2) {
            let [old, new] = [two[0], two[1]].map(|name| captured(&format!("{client}/{name}")));
            pairs.push(Pair { name: format!("{client}/{} to {}", two[0], two[1]), old, new });
        }
    }
    for (client, old, new) in RESUMED {
        let name = format!("{client}/{old} to {new}");
        let (old, new) = (captured(&format!("{client}/{old}")), captured(&format!("{client}/{new}")));
        pairs.push(Pair { name, new: resumed(&old, new), old });
    }
    // Thinking that was sent back, and then another question.
    for name in ["pi/variants/reasoning-replayed", "codex/variants/reasoning-replayed"] {
        let old = captured(name);
        let mut new = old.clone();
        new.messages.extend([Message::assistant("Done."), Message::user("Now say bye.")]);
        pairs.push(Pair { name: format!("{name}, another question"), old, new });
    }
    let new = captured("copilot/variants/compaction");
    let mut old = TurnRequest { tool_choice: ToolChoice::Auto, ..new.clone() };
    old.messages.pop();
    pairs.push(Pair { name: "copilot/variants/compaction, from the turn before".into(), old, new });
    for name in HISTORIES {
        let new = captured(name);
        let last = new.messages.iter().rposition(|message| message.role == "assistant").expect(name);
        let mut old = new.clone();
        old.messages.truncate(last);
        pairs.push(Pair { name: format!("{name}, the last turn"), old, new });
    }
    pairs
}

/// A model with a template of the fixtures. It is never asked to speak.
fn model(template: &str) -> Arc<Llm> {
    static MODELS: OnceLock<HashMap<String, Arc<Llm>>> = OnceLock::new();
    let models = MODELS.get_or_init(|| {
        let text = fs::read_to_string(fixture("text/templates.json")).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        let open = |(name, family): (&String, &Value)| {
            let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
            let template = family["template"].as_str().unwrap();
            tiny::speaking_llama().set("tokenizer.chat_template", template).write(file.path());
            let options = OpenOptions { threads: Some(1), ..OpenOptions::default() };
            let llm = Llm::open_on(file.path(), &options, Some(Script::default().backend(tiny::END))).unwrap();
            (name.clone(), Arc::new(llm))
        };
        all["families"].as_object().unwrap().iter().map(open).collect()
    });
    models[template].clone()
}

fn prompt(llm: &Llm, request: &TurnRequest) -> Result<TurnPrompt, String> {
    llm.turn_prompt(request, &[], None).map_err(|error| error.to_string())
}

fn text(llm: &Llm, prompt: &TurnPrompt) -> String {
    let bytes = prompt.tokens().iter().flat_map(|&id| llm.tokenizer().token_bytes(id)).copied().collect();
    String::from_utf8(bytes).unwrap()
}

/// What a template makes of two turns, and whether all of the first up to the opening of its answer begins the second.
fn compare(llm: &Llm, opening: &str, pair: &Pair) -> Result<(Difference, bool), String> {
    let (old, new) = (prompt(llm, &pair.old)?, prompt(llm, &pair.new)?);
    let difference = difference(&old, &new, llm.tokenizer());
    let (old, new) = (text(llm, &old), text(llm, &new));
    let said = old.strip_suffix(opening).unwrap_or_else(|| panic!("{}: {:?}", pair.name, &old[old.len() - 60..]));
    Ok((difference, new.starts_with(said)))
}

#[test]
fn turns_go_on_from_the_turns_before() {
    let pairs = pairs();
    let compared = |(template, opening): (&str, &str)| {
        let llm = model(template);
        pairs.iter().map(|pair| compare(&llm, opening, pair)).collect::<Vec<_>>()
    };
    let compared: Vec<_> = std::thread::scope(|scope| {
        let compared = &compared;
        let threads = TEMPLATES.map(|template| scope.spawn(move || compared(template)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut lines, mut parted) = (vec![], vec![]);
    for (index, pair) in pairs.iter().enumerate() {
        lines.push(pair.name.clone());
        for ((template, _), compared) in TEMPLATES.iter().zip(&compared) {
            let (difference, goes_on) = compared[index].as_ref().unwrap();
            lines.push(format!("  {template:<16} {difference}"));
            if !goes_on {
                parted.push((pair.name.as_str(), *template));
            }
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
    let excused =
        EXCEPTIONS.iter().flat_map(|(pair, templates, _)| templates.iter().map(|template| (*pair, *template)));
    assert_eq!(parted, excused.collect::<Vec<_>>());
}

/// Where a template has such a switch, `chat_template_kwargs` keeps the thinking, and the prompt goes on.
#[test]
fn kept_thinking_lets_a_new_question_go_on() {
    let [old, new] = ["hermes/requests/25", "hermes/requests/26"].map(|name| {
        let mut turn = captured(name);
        turn.thinking.variables.insert("preserve_thinking".into(), true.into());
        turn
    });
    let pair = Pair { name: "hermes".into(), old, new };
    let (difference, goes_on) = compare(&model("qwen3.5-like"), TEMPLATES[3].1, &pair).unwrap();
    assert!(goes_on, "{difference}");
}

#[test]
fn the_billing_line_changes_nothing_and_users_may_write_it() {
    let (path, body) = body("claude-code/requests/04");
    let mut other = body.clone();
    let line = other["system"][0]["text"].as_str().unwrap().to_owned();
    assert!(line.starts_with("x-anthropic-billing-header:"), "{line}");
    other["system"][0]["text"] = format!("{line} cch=other;").into();
    let mut without = body.clone();
    without["system"].as_array_mut().unwrap().remove(0);
    let mut said = body.clone();
    said["messages"][0]["content"] = line.clone().into();
    for template in THREE {
        let llm = model(template);
        let shown = |body| text(&llm, &prompt(&llm, &read(&path, body)).unwrap());
        let want = shown(&body);
        assert!(!want.contains("x-anthropic-billing-header"));
        assert_eq!((&shown(&other), &shown(&without)), (&want, &want), "{template}");
        assert!(shown(&said).contains(line.trim()), "{template}");
    }
}

#[test]
fn arguments_written_anew_by_clients_give_the_same_prompt() {
    for name in
        ["opencode/requests/04", "pi/requests/03", "hermes/requests/25", "goose/requests/04", "codex/requests/03"]
    {
        let (path, body) = body(name);
        let rewritten = |write: fn(&Value) -> String| {
            let mut body = body.clone();
            let list = if path.ends_with("responses") { "input" } else { "messages" };
            for message in body[list].as_array_mut().unwrap() {
                let rewrite = |holder: &mut Value| {
                    if let Some(text) = holder.get("arguments").and_then(Value::as_str) {
                        holder["arguments"] = write(&serde_json::from_str(text).unwrap()).into();
                    }
                };
                rewrite(message);
                for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                    rewrite(&mut call["function"]);
                }
            }
            read(&path, &body)
        };
        for template in THREE {
            let llm = model(template);
            let shown = |request: &TurnRequest| prompt(&llm, request).unwrap().tokens().to_vec();
            let want = shown(&read(&path, &body));
            for write in [Value::to_string, |value: &Value| serde_json::to_string_pretty(value).unwrap()] {
                assert_eq!(shown(&rewritten(write)), want, "{name} {template}");
            }
        }
    }
}

#[test]
fn a_request_always_gives_the_same_prompt() {
    for (name, template) in [("claude-code/requests/05", "qwen3-coder-like"), ("goose/requests/04", "smollm2-like")] {
        let (path, body) = body(name);
        let llm = model(template);
        let shown = || prompt(&llm, &read(&path, &body)).unwrap().tokens().to_vec();
        let want = shown();
        assert!((1..20).all(|_| shown() == want), "{name} {template}");
    }
}

#[test]
fn reasoning_is_taken_under_both_names() {
    let (path, body) = body("opencode/variants/reasoning-replayed");
    let with = |change: fn(&mut serde_json::Map<String, Value>)| {
        let mut body = body.clone();
        body["messages"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(|message| change(message.as_object_mut().unwrap()));
        read(&path, &body)
    };
    let llm = model("qwen3-like");
    let shown = |request| text(&llm, &prompt(&llm, &request).unwrap());
    let want = shown(with(|_| {}));
    assert!(want.contains("<think>\n"));
    let renamed = with(|message| {
        if let Some(thinking) = message.remove("reasoning_content") {
            message.insert("reasoning".into(), thinking);
        }
    });
    assert_eq!(shown(renamed), want);
    let none = with(|message| drop(message.remove("reasoning_content")));
    let empty = with(|message| {
        if message.contains_key("reasoning_content") {
            message.insert("reasoning_content".into(), "".into());
        }
    });
    assert_eq!(shown(empty), shown(none));
}
