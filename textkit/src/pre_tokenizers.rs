//! How byte-level vocabularies of GGUF files cut text before merging: one row per name.
//!
//! "deepseek-llm" is left out: its list of letters is in no source at hand, and a near miss would give
//! wrong ids without a word.
//!
//! The files hold only a name (tokenizer.ggml.pre). The expressions are those of the models' original
//! tokenisers, in Oniguruma's syntax, applied in order: each cuts the pieces the former left.

use crate::error::{Error, Result};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::SplitDelimiterBehavior;

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

pub struct Row {
    /// Names this row answers to.
    pub names: &'static [&'static str],
    pub pattern: Pattern,
    /// A piece that is a token as it stands is taken whole.
    pub ignore_merges: bool,
    pub nfc: bool,
    /// Where the file does not say whether BOS is added.
    pub default_add_bos: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    Llama3,
    Qwen2,
    Qwen35,
    Gpt2,
    DigitsGpt2,
    Gpt4o,
    Tekken,
    DeepseekV3,
    DeepseekCoder,
    KimiK2,
    SeedCoder,
    Bailing,
    ExaoneMoe,
    TinyAya,
    OldDefault,
}

const fn row(names: &'static [&'static str], pattern: Pattern) -> Row {
    Row { names, pattern, ignore_merges: false, nfc: false, default_add_bos: false }
}

impl Row {
    const fn whole_pieces(mut self) -> Self {
        self.ignore_merges = true;
        self
    }

    const fn nfc(mut self) -> Self {
        self.nfc = true;
        self
    }

    const fn adds_bos(mut self) -> Self {
        self.default_add_bos = true;
        self
    }
}

pub static ROWS: &[Row] = &[
    row(
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        Pattern::Llama3,
    )
    .whole_pieces()
    .adds_bos(),
    row(&["smaug-bpe", "dbrx", "chatglm-bpe"], Pattern::Llama3),
    row(&["glm4", "glm5"], Pattern::Llama3).whole_pieces(),
    row(&["qwen2", "deepseek-r1-qwen"], Pattern::Qwen2).nfc(),
    row(&["megrez", "hunyuan", "solar-open", "grok-2", "stablelm2"], Pattern::Qwen2),
    row(&["qwen35"], Pattern::Qwen35).nfc(),
    row(&["gpt-4o", "llama4", "kanana2"], Pattern::Gpt4o).whole_pieces(),
    row(&["minimax-m2"], Pattern::Gpt4o),
    row(&["tekken"], Pattern::Tekken).whole_pieces().adds_bos(),
    row(&["deepseek-v3", "hunyuan-dense", "joyai-llm"], Pattern::DeepseekV3),
    row(&["deepseek-coder"], Pattern::DeepseekCoder),
    row(&["kimi-k2"], Pattern::KimiK2),
    row(&["smollm"], Pattern::DigitsGpt2),
    row(&["command-r"], Pattern::DigitsGpt2).nfc(),
    row(
        &["refact", "starcoder", "codeshell", "exaone", "minerva-7b", "mellum2"],
        Pattern::DigitsGpt2,
    ),
    row(
        &[
            "gpt-2",
            "mpt",
            "phi-2",
            "exaone4",
            "jais",
            "modern-bert",
            "gigachat",
            "trillion",
            "granite-docling",
        ],
        Pattern::Gpt2,
    ),
    row(&["olmo"], Pattern::Gpt2).nfc(),
    row(&["seed-coder"], Pattern::SeedCoder),
    row(&["bailingmoe", "bailingmoe2", "llada-moe"], Pattern::Bailing),
    row(&["exaone-moe"], Pattern::ExaoneMoe),
    row(&["tiny_aya", "cohere2moe"], Pattern::TinyAya),
    row(&["default"], Pattern::OldDefault),
];

pub fn find(name: &str) -> Result<&'static Row> {
    ROWS.iter().find(|row| row.names.contains(&name)).ok_or_else(|| {
        Error::unsupported(format!(
            "the pre-tokenizer \"{name}\" (tokenizer.ggml.pre) is not known, and guessing would give wrong token ids"
        ))
    })
}

fn gpt2() -> String {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+".into()
}

/// The family of expressions that Llama 3 began: `digits` and the two letter classes vary.
fn llama3(digits: &str, letters: &str, others: &str) -> String {
    format!(
        r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?{others}+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// The family of GPT-4o: words are cut where a lower-case letter meets an upper-case one.
fn gpt4o(digits: &str, contractions: &str, exclude: &str, tail: &str) -> String {
    let upper = format!(r"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{exclude}]");
    let lower = format!(r"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{exclude}]");
    let lead = r"[^\r\n\p{L}\p{N}]?";
    format!(
        r"{lead}{upper}*{lower}+{contractions}|{lead}{upper}+{lower}*{contractions}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{tail}|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

impl Pattern {
    /// The expressions in order.
    pub fn expressions(self) -> Vec<String> {
        let optional = format!("{CONTRACTIONS}?");
        let o2 = || gpt4o(r"\p{N}{1,3}", &optional, "", r"[\r\n/]*");
        match self {
            Pattern::Llama3 => vec![llama3(r"\p{N}{1,3}", r"\p{L}", r"[^\s\p{L}\p{N}]")],
            Pattern::Qwen2 => vec![llama3(r"\p{N}", r"\p{L}", r"[^\s\p{L}\p{N}]")],
            Pattern::Qwen35 => vec![llama3(r"\p{N}", r"[\p{L}\p{M}]", r"[^\s\p{L}\p{M}\p{N}]")],
            Pattern::Gpt2 => vec![gpt2()],
            Pattern::DigitsGpt2 => vec![r"\p{N}".into(), gpt2()],
            Pattern::Gpt4o => vec![o2()],
            Pattern::Tekken => vec![gpt4o(r"\p{N}", "", "", r"[\r\n/]*")],
            Pattern::DeepseekV3 => vec![
                r"\p{N}{1,3}".into(),
                "[一-龥\u{3040}-ゟ゠-ヿ]+".into(),
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##.into(),
            ],
            Pattern::DeepseekCoder => vec![
                r"[\r\n]".into(),
                r"\s?\p{L}+".into(),
                r"\s?\p{P}+".into(),
                "[一-龥ࠀ-一가-\u{D7FF}]+".into(),
                r"\p{N}".into(),
            ],
            Pattern::KimiK2 => vec![format!(
                r"\p{{Han}}+|{}",
                gpt4o(r"\p{N}{1,3}", &optional, r"&&[^\p{Han}]", r"[\r\n]*")
            )],
            Pattern::SeedCoder => vec![format!(
                r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
            )],
            Pattern::Bailing => vec![
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+".into(),
            ],
            Pattern::ExaoneMoe => vec![format!(
                r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
            )],
            Pattern::TinyAya => vec![r"\d{1,3}(?=(?:\d{3})*\b)".into(), o2()],
            Pattern::OldDefault => vec![
                r"[\p{P}\$\+<=>\^~\|]+".into(),
                gpt2(),
                r"\p{N}+".into(),
                "[0-9][0-9][0-9]".into(),
            ],
        }
    }

    pub fn build(self) -> Result<PreTokenizerWrapper> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for expression in self.expressions() {
            steps.push(split(&expression)?.into());
        }
        steps.push(ByteLevel::new(false, false, false).into());
        Ok(Sequence::new(steps).into())
    }
}

pub fn split(expression: &str) -> Result<Split> {
    Split::new(SplitPattern::Regex(expression.into()), SplitDelimiterBehavior::Isolated, false)
        .map_err(|error| {
            Error::internal(format!("the expression {expression} does not compile: {error}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_compiles_and_names_are_unique() {
        let mut names = std::collections::HashSet::new();
        for row in ROWS {
            row.pattern.build().expect("compiles");
            for name in row.names {
                assert!(names.insert(name), "{name} stands twice");
            }
        }
        assert!(names.len() > 40);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_names_it() {
        let error = find("no-such-thing").err().expect("refused");
        assert!(error.message.contains("no-such-thing"));
    }
}
