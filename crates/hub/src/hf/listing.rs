//! What a repository holds: the hub's answer, checked, and which of its files make a model.

use std::time::Duration;

use serde::Deserialize;

use super::client::{Answer, Broken, Client};
use crate::catalog::Source;
use crate::hash::{Hash, is_hex};
use crate::job::{Job, Phase};
use crate::name::shorten;
use crate::place::{FileRecord, Record};
use crate::{FileName, HubError, Repository};

const MAX_TRIES: usize = 3;
/// A larger answer is no listing.
const MAX_ANSWER_BYTES: usize = 1 << 25;
const MAX_FILES: usize = 100_000;
/// A larger file does not exist.
const MAX_FILE_BYTES: u64 = 1 << 50;

/// Endings of the files beside the weights that a model may need.
const BESIDE: [&str; 4] = [".json", ".jinja", ".txt", ".model"];

/// A repository at one commit.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) record: Record,
    /// `model_type` of its config, if the hub says it.
    pub(crate) family: Option<String>,
}

/// `GET /api/models/OWNER/NAME/revision/REVISION?blobs=true`, as far as it is needed.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Option<Vec<Sibling>>,
    config: Option<Config>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

#[derive(Deserialize)]
struct Config {
    model_type: Option<String>,
}

/// Asks the hub what a repository holds at a revision.
pub(crate) fn ask(
    job: &mut Job,
    client: &Client,
    repository: &Repository,
    revision: &str,
) -> Result<Listing, HubError> {
    job.tell(Phase::Asking, 0, 1);
    let mut wait = client.timing.retry;
    let mut tries = 1;
    loop {
        let passing = match ask_once(job, client, repository, revision)? {
            Ok(listing) => return Ok(listing),
            Err(passing) => passing,
        };
        if tries == MAX_TRIES {
            return Err(super::connection(client, &repository.to_string(), passing.reason));
        }
        job.sleep(passing.wait.unwrap_or(wait))?;
        wait *= 2;
        tries += 1;
    }
}

/// What may be gone the next time.
struct Passing {
    reason: String,
    /// How long the hub asks to wait.
    wait: Option<Duration>,
}

fn ask_once(
    job: &mut Job,
    client: &Client,
    repository: &Repository,
    revision: &str,
) -> Result<Result<Listing, Passing>, HubError> {
    let what = repository.to_string();
    let (owner, name) = repository.parts();
    let mut url = client.url(["api", "models", owner, name, "revision", revision]);
    url.set_query(Some("blobs=true"));
    let mut answer = match client.get(job, url, 0) {
        Ok(answer) => answer,
        Err(Broken::Stopped(error)) => return Err(error),
        // There may be another source: nobody waits for one that cannot be reached.
        Err(Broken::NoAnswer(reason) | Broken::Cut(reason)) => return Err(super::connection(client, &what, reason)),
    };
    if let Some(error) = super::refused(client, repository, None, &answer) {
        return Err(error);
    }
    let status = format!("HTTP status {}", answer.status);
    if super::may_pass(answer.status) {
        return Ok(Err(Passing { reason: status, wait: answer.retry_after }));
    }
    if answer.status != 200 {
        return Err(HubError::Answer { what, reason: status });
    }
    match read(job, &mut answer, &what) {
        Ok(text) => parse(repository, &text).map(Ok),
        Err(Broken::Stopped(error)) => Err(error),
        Err(Broken::NoAnswer(reason) | Broken::Cut(reason)) => Ok(Err(Passing { reason, wait: None })),
    }
}

fn read(job: &mut Job, answer: &mut Answer, what: &str) -> Result<Vec<u8>, Broken> {
    let mut text = Vec::new();
    while let Some(chunk) = answer.next(job)? {
        text.extend(chunk);
        if text.len() > MAX_ANSWER_BYTES {
            let reason = format!("it has more than {MAX_ANSWER_BYTES} bytes");
            return Err(Broken::Stopped(HubError::Answer { what: what.to_owned(), reason }));
        }
    }
    Ok(text)
}

/// Reads the hub's answer. Files that cannot belong to a model are left out.
fn parse(repository: &Repository, text: &[u8]) -> Result<Listing, HubError> {
    let wrong = |reason: String| HubError::Answer { what: repository.to_string(), reason };
    let info: Info = serde_json::from_slice(text).map_err(|error| wrong(shorten(&error.to_string())))?;
    if !is_hex(&info.sha, 40) {
        return Err(wrong(format!("`{}` is not a commit", shorten(&info.sha))));
    }
    let siblings = info.siblings.unwrap_or_default();
    if siblings.len() > MAX_FILES {
        return Err(wrong(format!("it lists {} files, expected at most {MAX_FILES}", siblings.len())));
    }
    let mut names = std::collections::HashSet::new();
    let mut files = Vec::new();
    for sibling in siblings.into_iter().filter(|sibling| may_belong(&sibling.rfilename)) {
        let bad = |reason| HubError::BadFileName {
            repository: repository.to_string(),
            name: shorten(&sibling.rfilename),
            reason,
        };
        let name = FileName::parse(&sibling.rfilename).map_err(bad)?;
        if !names.insert(name.folded()) {
            return Err(bad("differs from another only in case"));
        }
        let hash = match sibling.lfs {
            Some(lfs) => lfs.sha256.as_deref().and_then(Hash::sha256),
            None => sibling.blob_id.as_deref().and_then(Hash::git_blob),
        };
        let (Some(hash), Some(size_bytes)) = (hash, sibling.size.filter(|size| *size <= MAX_FILE_BYTES)) else {
            return Err(wrong(format!("it does not say size and hash of {name}")));
        };
        files.push(FileRecord { name, size_bytes, hash, verified_ns: None });
    }
    let source = Source::HuggingFace(repository.to_string());
    let family = info.config.and_then(|config| config.model_type);
    Ok(Listing { record: Record { source, commit: Some(info.sha), files }, family })
}

/// Whether a file could be part of a model: GGUF files anywhere, the others in the repository's folder itself.
fn may_belong(name: &str) -> bool {
    let is_top = !name.contains('/') && !name.starts_with('.');
    name.ends_with(".gguf")
        || is_top && (name.ends_with(".safetensors") || BESIDE.iter().any(|end| name.ends_with(end)))
}

/// The files of one model in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Indices into the record.
    pub(crate) files: Vec<usize>,
    /// The file to open; None for the folder.
    pub(crate) open: Option<FileName>,
}

/// Chooses the files of a model: the GGUF file (with the other parts of a split one) of that name, or without a name the
/// folder of safetensors, or else the only GGUF file.
pub(crate) fn choose(
    repository: &Repository,
    record: &Record,
    file: Option<&FileName>,
) -> Result<Choice, Option<HubError>> {
    let files = || record.files.iter().enumerate();
    if let Some(name) = file {
        // None: it is for the caller to say what it was looking for.
        let named = record.files.iter().find(|file| file.name == *name).ok_or(None)?;
        let group = group(&named.name);
        let indices: Vec<usize> =
            files().filter(|(_, file)| self::group(&file.name) == group).map(|(index, _)| index).collect();
        let first = indices.iter().map(|index| &record.files[*index].name).min().cloned();
        return Ok(Choice { files: indices, open: first });
    }
    let is_gguf = |name: &FileName| name.as_str().ends_with(".gguf");
    let has = |holds: &dyn Fn(&FileName) -> bool| record.files.iter().any(|file| holds(&file.name));
    if has(&|name| name.as_str() == "config.json") && has(&|name| name.as_str().ends_with(".safetensors")) {
        let indices = files().filter(|(_, file)| file.name.is_top() && !is_gguf(&file.name)).map(|(index, _)| index);
        return Ok(Choice { files: indices.collect(), open: None });
    }
    let mut groups: Vec<(String, &FileName)> = Vec::new();
    for (_, file) in files().filter(|(_, file)| is_gguf(&file.name)) {
        let group = group(&file.name);
        if !groups.iter().any(|(known, _)| *known == group) {
            groups.push((group, &file.name));
        }
    }
    match groups[..] {
        [] => Err(Some(HubError::NoModel { repository: repository.to_string() })),
        [(_, only)] => choose(repository, record, Some(only)),
        _ => {
            let mut names = groups.iter().take(8).map(|(_, name)| name.to_string()).collect::<Vec<_>>().join(", ");
            if groups.len() > 8 {
                names.push_str(", ...");
            }
            Err(Some(HubError::SeveralFiles { repository: repository.to_string(), files: names }))
        }
    }
}

/// What the parts of a split file have in common: `NAME-00001-of-00003.gguf` without the number of the part.
pub(crate) fn group(name: &FileName) -> String {
    let text = name.as_str();
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|c| c.is_ascii_digit());
    let split = text.strip_suffix(".gguf").and_then(|stem| {
        let (rest, total) = stem.rsplit_once("-of-")?;
        let (name, part) = rest.rsplit_once('-')?;
        (is_number(total) && is_number(part)).then(|| format!("{name}-*-of-{total}.gguf"))
    });
    split.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn repository() -> Repository {
        Repository::parse("owner/name").unwrap()
    }

    fn listing(names: &[&str]) -> Result<Listing, HubError> {
        let siblings: Vec<_> = names
            .iter()
            .map(|name| json!({ "rfilename": name, "size": 3, "blobId": "ab".repeat(20), "more": [1] }))
            .collect();
        parse(&repository(), json!({ "sha": "0f".repeat(20), "siblings": siblings }).to_string().as_bytes())
    }

    fn chosen(names: &[&str], file: Option<&str>) -> Result<Vec<String>, String> {
        let record = listing(names).unwrap().record;
        let file = file.map(|file| FileName::parse(file).unwrap());
        match choose(&repository(), &record, file.as_ref()) {
            Ok(choice) => Ok(choice.files.iter().map(|index| record.files[*index].name.to_string()).collect()),
            Err(error) => Err(error.map_or("no such file".to_owned(), |error| error.to_string())),
        }
    }

    #[test]
    fn a_folder_is_its_config_weights_and_what_lies_beside_them() {
        let names = [
            "README.md",
            ".gitattributes",
            "config.json",
            "model-1.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
            "chat_template.jinja",
            "merges.txt",
            "tokenizer.model",
            "onnx/model.onnx",
            "sub/other.safetensors",
            "x.gguf",
            "pytorch_model.bin",
            ".hidden.json",
        ];
        let folder = chosen(&names, None).unwrap();
        let expected = [
            "config.json",
            "model-1.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
            "chat_template.jinja",
            "merges.txt",
            "tokenizer.model",
        ];
        assert_eq!(folder, expected);
        assert_eq!(chosen(&names, Some("x.gguf")).unwrap(), ["x.gguf"]);
    }

    #[test]
    fn a_gguf_file_comes_with_all_its_parts() {
        let names = ["q4/m-00002-of-00002.gguf", "q4/m-00001-of-00002.gguf", "best-of-breed.gguf", "config.json"];
        assert_eq!(chosen(&names, Some("q4/m-00002-of-00002.gguf")).unwrap(), names[..2]);
        assert_eq!(chosen(&names, Some("best-of-breed.gguf")).unwrap(), ["best-of-breed.gguf"]);
        assert_eq!(chosen(&names, Some("m.gguf")).unwrap_err(), "no such file");
        assert_eq!(chosen(&names[..2], None).unwrap(), names[..2]);
        assert!(chosen(&names, None).unwrap_err().contains("of q4/m-00002-of-00002.gguf, best-of-breed.gguf"));
        assert!(chosen(&["config.json", "x.bin"], None).unwrap_err().contains("neither a GGUF file nor"));
        let record = listing(&names).unwrap().record;
        let open = choose(&repository(), &record, Some(&record.files[0].name)).unwrap().open.unwrap();
        assert_eq!(open.as_str(), "q4/m-00001-of-00002.gguf");
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for name in ["../x.gguf", "/x.gguf", "a\\..\\x.gguf", "C:x.json", "nul.json", "a/../../x.gguf", "x\n.json"] {
            let error = listing(&["config.json", name]).unwrap_err().to_string();
            assert!(error.contains("whose name") && !error.contains('\n'), "{error}");
        }
        assert!(listing(&["a.json", "A.json"]).unwrap_err().to_string().contains("only in case"));
        assert_eq!(listing(&["../x.md", "a/../../b.safetensors"]).unwrap().record.files, []);
    }

    #[test]
    fn an_answer_without_commit_size_or_hash_is_refused() {
        let commit = "0f".repeat(20);
        for (answer, expected) in [
            (json!([]), "invalid length"),
            (json!({ "sha": 5 }), "invalid type"),
            (json!({ "sha": "main" }), "`main` is not a commit"),
            (json!({ "sha": commit, "siblings": [{ "rfilename": "a.json" }] }), "size and hash of a.json"),
            (json!({ "sha": commit, "siblings": [{ "rfilename": "a.json", "size": -1 }] }), "invalid value"),
            (
                json!({ "sha": commit, "siblings": [{ "rfilename": "a.json", "size": 1u64 << 60, "blobId": commit }] }),
                "size and hash",
            ),
            (
                json!({ "sha": commit, "siblings": [{ "rfilename": "a.json", "size": 1, "lfs": { "sha256": "../x" } }] }),
                "size and hash",
            ),
        ] {
            let error = parse(&repository(), answer.to_string().as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let nothing = parse(&repository(), json!({ "sha": commit, "siblings": null }).to_string().as_bytes()).unwrap();
        assert_eq!(nothing.record.files, []);
    }

    proptest! {
        #[test]
        fn any_answer_is_taken_or_refused(text in r#"[\[\]{}",:0-9a-z.\\/ ]{0,200}|\PC{0,100}"#) {
            let _ = parse(&repository(), text.as_bytes());
        }

        #[test]
        fn damaged_answers_keep_files_in_their_folder(at in 0usize..400, byte: u8) {
            let siblings = json!([{ "rfilename": "a/b.gguf", "size": 7, "lfs": { "sha256": "ab".repeat(32) } }]);
            let mut text = json!({ "sha": "0f".repeat(20), "siblings": siblings }).to_string().into_bytes();
            let at = at % text.len();
            text[at] = byte;
            if let Ok(listing) = parse(&repository(), &text) {
                prop_assert!(listing.record.files.iter().all(|file| FileName::parse(file.name.as_str()).is_ok()));
            }
        }
    }
}
