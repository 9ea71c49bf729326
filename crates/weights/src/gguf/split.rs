//! Models split over several GGUF files, named `NAME-00001-of-00003.gguf`.
//!
//! Each shard is a complete GGUF file with its own tensor table. Numbers in names count from 1, `split.no` in the
//! header from 0, and `split.tensors.count` is for the whole set. Only the first shard has the model's metadata.

use std::path::{Path, PathBuf};

use super::File;
use crate::LoadError;

/// `NAME-00001-of-00003.gguf` taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardName {
    /// Everything before the number.
    stem: String,
    /// Counts from 1.
    number: u32,
    count: u32,
    /// Digits of both numbers, to rebuild the siblings' names.
    digits: (usize, usize),
}

/// Shards of one model. Real sets have under 100.
const MAX_SHARDS: u32 = 10_000;

impl ShardName {
    /// `None` if `name` does not have the form, such as `best-of-breed.gguf`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = (number.len(), count.len());
        let (number, count) = (parse_digits(number)?, parse_digits(count)?);
        (1..=count).contains(&number).then(|| ShardName { stem: stem.to_string(), number, count, digits })
    }

    /// What the shards of a model have in common.
    pub(crate) fn model(&self) -> String {
        format!("{}-of-{}", self.stem, self.count)
    }

    fn sibling(&self, number: u32) -> String {
        let (number_digits, count_digits) = self.digits;
        format!("{}-{number:0number_digits$}-of-{:0count_digits$}.gguf", self.stem, self.count)
    }
}

fn parse_digits(text: &str) -> Option<u32> {
    let valid = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if valid { text.parse().ok()? } else { return None };
    (number <= MAX_SHARDS).then_some(number)
}

/// Opens `path` and, if it is a shard, its siblings; in order, the file with the metadata first.
pub(crate) fn open(path: &Path) -> Result<Vec<File>, LoadError> {
    let shard = path.file_name().and_then(|name| name.to_str()).and_then(ShardName::parse);
    let Some(shard) = shard.filter(|shard| shard.count > 1) else {
        let file = File::open(path)?;
        if let Some(count) = file.metadata.opt_u32("split.count")?.filter(|&count| count > 1) {
            return Err(file.metadata.error(
                "split.count",
                format!(
                    "is {count}, but the file's name does not end in -NNNNN-of-{count:05}.gguf, so that the other shards \
                     cannot be found; give it back the name it was published under"
                ),
            ));
        }
        return Ok(vec![file]);
    };

    let folder = path.parent().unwrap_or(Path::new(""));
    let paths: Vec<PathBuf> = (1..=shard.count).map(|number| folder.join(shard.sibling(number))).collect();
    let missing: Vec<&PathBuf> = paths.iter().filter(|path| !path.is_file()).collect();
    if let Some(first) = missing.first() {
        return Err(LoadError::malformed(
            *first,
            format!(
                "this shard is missing ({} of {} shards are); fetch it into the same folder",
                missing.len(),
                shard.count
            ),
        ));
    }
    let files = paths.iter().map(|path| File::open(path)).collect::<Result<Vec<_>, _>>()?;
    for (index, file) in files.iter().enumerate() {
        check(file, "split.count", shard.count, true)?;
        check(file, "split.no", index as u32, true)?;
    }
    let num_tensors: usize = files.iter().map(|file| file.tensors.len()).sum();
    for file in &files {
        check(file, "split.tensors.count", num_tensors as u32, false)?;
    }
    Ok(files)
}

fn check(file: &File, key: &str, expected: u32, required: bool) -> Result<(), LoadError> {
    match file.metadata.opt_u32(key)? {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(file.metadata.error(
            key,
            format!("is {found}, expected {expected} by the names and contents of all shards; fetch the set again"),
        )),
        None if !required => Ok(()),
        None => Err(file
            .metadata
            .error(key, "is absent, expected in a file with a shard's name; rename the file if it is a whole model")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let shard = ShardName::parse("a-b-00002-of-00013.gguf").unwrap();
        assert_eq!((shard.stem.as_str(), shard.number, shard.count), ("a-b", 2, 13));
        assert_eq!(shard.sibling(13), "a-b-00013-of-00013.gguf");
        for name in [
            "best-of-breed.gguf",
            "x-00000-of-00002.gguf",
            "x-00003-of-00002.gguf",
            "x-1-of-.gguf",
            "x-+1-of-+2.gguf",
            "x-00001-of-99999999.gguf",
            "x-00001-of-00002.gguf.part",
            "-of-.gguf",
        ] {
            assert_eq!(ShardName::parse(name), None, "{name}");
        }
    }
}
