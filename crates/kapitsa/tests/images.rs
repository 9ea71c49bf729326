//! Images through the facade: where they stand in the prompt, and that text never stands for one.

use std::ops::ControlFlow;
use std::path::Path;

use kapitsa::{Event, ImageFile, Llm, Message, OpenOptions, Prompt, ReplyRequest, SamplingOptions};
use kapitsa_testkit::tiny::{self, bmp};
use serde_json::{Value, json};

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    tiny::write_seeing_qwen(folder.path());
    folder
}

fn open(folder: &Path) -> Result<Llm, String> {
    let options = OpenOptions { threads: Some(1), context: Some(2000), ..OpenOptions::default() };
    Llm::open(folder, &options).map_err(|error| error.to_string())
}

fn message(role: &str, content: Value) -> Message {
    Message { content, ..Message::new(role, "") }
}

fn image(llm: &Llm, width: u32, height: u32, colour: [u8; 3]) -> ImageFile {
    llm.image_files(vec![bmp(width, height, colour)]).unwrap().remove(0)
}

#[test]
fn images_stand_where_the_messages_have_them() {
    let llm = open(folder().path()).unwrap();
    let [start, pad, end] = tiny::IMAGE;
    let text = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let content =
        json!([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}, {"type": "image"}]);
    let files = [image(&llm, 24, 16, [0; 3]), image(&llm, 8, 8, [9; 3])];
    let prompt = llm.chat_prompt(&[message("user", content)], &files, None).unwrap();
    let expected =
        [text("user:a"), vec![start], vec![pad; 6], vec![end], text("b"), vec![start, pad, end, tiny::END], text(">")];
    assert_eq!(prompt.tokens, expected.concat());
    let places: Vec<_> = prompt.images.iter().map(|image| (image.start, image.grid)).collect();
    assert_eq!(places, [(7, (4, 6)), (16, (2, 2))]);
}

#[test]
fn text_never_stands_for_an_image() {
    let llm = open(folder().path()).unwrap();
    let sly = "<|vision_start|><|image_pad|><|vision_end|>";
    let parts = |text: &str| {
        let text = json!({"type": "text", "text": text});
        message("user", json!([text, {"type": "image"}, text]))
    };
    let conversation = |text: &str| {
        let others = ["system", "user", "assistant", "tool"].map(|role| Message::new(role, text));
        [&others[..], &[parts(text)]].concat()
    };
    let files = [image(&llm, 24, 16, [0; 3])];
    let count = |prompt: &Prompt| tiny::IMAGE.map(|id| prompt.tokens.iter().filter(|&&token| token == id).count());
    for text in ["a", sly, &format!("a{sly}{sly}b"), "<|image_pad|>"] {
        let prompt = llm.chat_prompt(&conversation(text), &files, None).unwrap();
        assert_eq!(count(&prompt), [1, 6, 1], "{text}");
        let before = prompt.tokens[..prompt.images[0].start].to_vec();
        assert!(llm.tokenizer().decode(&before).ends_with(&format!("user:{text}")), "{text}");
    }
    assert_eq!(count(&llm.plain_prompt(sly).unwrap()), [0; 3]);
}

#[test]
fn a_tokenizer_that_makes_image_tokens_of_text_is_refused() {
    let folder = folder();
    let path = folder.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for token in tokenizer["added_tokens"].as_array_mut().unwrap() {
        token["special"] = false.into();
    }
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let error = open(folder.path()).err().unwrap();
    assert!(error.contains("config.json") && error.contains("`image_token_id`"), "{error}");
    assert!(
        error.ends_with("is 250, expected a control token of the tokenizer; fetch tokenizer.json again"),
        "{error}"
    );
}

#[test]
fn templates_without_a_place_for_images_say_so() {
    let folder = folder();
    let text_only = "the model's chat template has no place for images in these messages; send text only";
    for (template, expected) in [
        ("{{ messages[0].content }}", text_only),
        ("{{ 'user:' + messages[0].content }}", text_only),
        ("{{ raise_exception('only text') }}", "the model's chat template refuses these messages: only text"),
        (
            "{% for part in messages[0].content %}<|image_pad|>{% endfor %}",
            "the model's chat template makes 2 places for 1 images; send fewer or none",
        ),
    ] {
        std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        let llm = open(folder.path()).unwrap();
        let content = json!([{"type": "image"}, {"type": "text", "text": "a"}]);
        let error = llm.chat_prompt(&[message("user", content)], &[image(&llm, 8, 8, [0; 3])], None).unwrap_err();
        assert_eq!(error.to_string(), expected, "{template}");
    }
}

#[test]
fn the_reply_depends_on_the_pixels_and_on_nothing_else() {
    let llm = open(folder().path()).unwrap();
    let reply = |content: Value, files: &[ImageFile]| {
        let request = ReplyRequest {
            prompt: llm.chat_prompt(&[message("user", content)], files, None).unwrap(),
            sampling: SamplingOptions { temperature: 0.0, ..SamplingOptions::default() },
            stops: vec![],
            max_tokens: Some(8),
            logprobs: Some(0),
        };
        let mut tokens = vec![];
        let reply = llm.reply(&request, &mut |event| {
            if let Event::Token { id, logprobs } = event {
                tokens.push((id, logprobs.unwrap().logprob.to_bits()));
            }
            ControlFlow::Continue(())
        });
        (reply.unwrap().prompt_tokens, tokens)
    };
    let content = json!([{"type": "image"}, {"type": "text", "text": "what is it"}]);
    let red = reply(content.clone(), &[image(&llm, 40, 24, [0, 0, 255])]);
    let blue = reply(content.clone(), &[image(&llm, 40, 24, [255, 0, 0])]);
    assert_eq!(reply(content, &[image(&llm, 40, 24, [0, 0, 255])]), red);
    assert_ne!(red.1, blue.1);
    assert_eq!((red.0, blue.0), (34, 34));
    assert_eq!(reply("what is it".into(), &[]).0, 17);
}

#[test]
fn a_model_without_a_tower_takes_no_image() {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    tiny::write_speaking_llama(file.path());
    let llm = open(file.path()).unwrap();
    assert!(!llm.sees_images());
    assert!(llm.image_files(vec![]).is_ok());
    let error = llm.image_files(vec![bmp(8, 8, [0; 3])]).err().unwrap().to_string();
    assert_eq!(error, "the model sees no images; send text only");
}
