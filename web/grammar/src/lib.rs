//! llguidance behind functions of numbers, for JavaScript (`web/src/worker/grammar.ts`, the only caller).
//!
//! One instance of the module has one tokenizer and any number of matchers, which are addresses.
//! Texts come in memory that `reserve` gave; what a call has to say beside its number lies at
//! `told` until the next call. A panic is a trap: its instance is at its end.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{bail, ensure, Result};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{token_bytes_from_tokenizer_json, Matcher, ParserFactory};
use serde_json::Value;

#[link(wasm_import_module = "env")]
extern "C" {
    /// Writes the tokens of a text in UTF-8, at most `room`; returns how many there are.
    fn tokenize(text: *const u8, length: usize, out: *mut TokenId, room: usize) -> usize;
}

thread_local! {
    static FACTORY: RefCell<Option<ParserFactory>> = const { RefCell::new(None) };
    static TOLD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Tokens as the model's own tokenizer makes them, where it writes a text as it is.
struct Tokens {
    trie: TokTrie,
    canonical: bool,
}

impl Tokens {
    fn new(trie: TokTrie) -> Self {
        let probe = br#"{"a": [1, "b c"]}"#;
        let canonical = trie.decode(&ask(probe)) == probe;
        Self { trie, canonical }
    }
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        if !self.canonical {
            return self.trie.greedy_tokenize(bytes);
        }
        self.trie
            .tokenize_with_greedy_fallback(bytes, |text| ask(text.as_bytes()))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}

fn ask(text: &[u8]) -> Vec<TokenId> {
    let mut out = vec![0; text.len() + 8];
    loop {
        let count = unsafe { tokenize(text.as_ptr(), text.len(), out.as_mut_ptr(), out.len()) };
        if count <= out.len() {
            out.truncate(count);
            return out;
        }
        out.resize(count, 0);
    }
}

fn tell(bytes: impl Into<Vec<u8>>) -> usize {
    TOLD.with_borrow_mut(|told| {
        *told = bytes.into();
        told.len()
    })
}

fn tell_words(words: &[u32]) -> usize {
    tell(
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
}

/// Where what was told begins.
#[no_mangle]
pub extern "C" fn told() -> *const u8 {
    TOLD.with_borrow(|told| told.as_ptr())
}

/// Memory for a text, which the call that it is for takes over.
#[no_mangle]
pub extern "C" fn reserve(length: usize) -> *mut u8 {
    Box::into_raw(vec![0u8; length].into_boxed_slice()).cast()
}

unsafe fn taken(at: *mut u8, length: usize) -> Vec<u8> {
    Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, length)).into_vec()
}

/// Take a model's tokenizer.json and the ids that end answers. Returns 0, or the length of what is
/// told: why that cannot be.
///
/// # Safety
/// Both are of `reserve`.
#[no_mangle]
pub unsafe extern "C" fn open(
    json: *mut u8,
    length: usize,
    vocab_size: u32,
    ends: *mut u8,
    ends_length: usize,
    lexer_states: usize,
    grammar_size: usize,
) -> usize {
    let (json, ends) = (taken(json, length), taken(ends, ends_length));
    let ends: Vec<TokenId> = ends
        .chunks_exact(4)
        .map(|id| TokenId::from_le_bytes([id[0], id[1], id[2], id[3]]))
        .collect();
    match opened(&json, vocab_size, &ends, lexer_states, grammar_size) {
        Ok(factory) => {
            FACTORY.set(Some(factory));
            0
        }
        Err(why) => tell(why.to_string()),
    }
}

fn opened(
    json: &[u8],
    vocab_size: u32,
    ends: &[TokenId],
    lexer_states: usize,
    grammar_size: usize,
) -> Result<ParserFactory> {
    let mut words = token_bytes_from_tokenizer_json(&serde_json::from_slice(json)?)?;
    let largest = words
        .len()
        .saturating_sub(1)
        .max(ends.iter().copied().max().unwrap_or(0) as usize);
    ensure!(
        largest < vocab_size as usize,
        "the vocabulary has more than {vocab_size} tokens"
    );
    ensure!(!ends.is_empty(), "no token ends an answer");
    words.resize(vocab_size as usize, vec![]);
    let trie = TokTrie::from(&TokRxInfo::new(vocab_size, ends[0]), &words).with_eos_tokens(ends);
    let env: TokEnv = Arc::new(Tokens::new(trie));
    let mut factory = ParserFactory::new_simple(&env)?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        max_lexer_states: lexer_states,
        max_grammar_size: grammar_size,
        verbose_errors: false,
        ..ParserLimits::default()
    };
    Ok(factory)
}

/// A matcher at its start, of a text by its tag (`json_schema`, `regex`, `lark`); `settings`: JSON
/// of llguidance's options of a schema. Errors are the matcher's to tell.
///
/// # Safety
/// All three are of `reserve`.
#[no_mangle]
pub unsafe extern "C" fn read(
    tag: *mut u8,
    tag_length: usize,
    text: *mut u8,
    length: usize,
    settings: *mut u8,
    settings_length: usize,
) -> *mut Matcher {
    let [tag, text, settings] = [
        taken(tag, tag_length),
        taken(text, length),
        taken(settings, settings_length),
    ]
    .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let parser = grammar(&tag, &text, &settings).and_then(|grammar| {
        FACTORY.with_borrow(|factory| match factory {
            Some(factory) => factory.create_parser(grammar),
            None => bail!("no tokenizer was opened"),
        })
    });
    Box::into_raw(Box::new(Matcher::new(parser)))
}

fn grammar(tag: &str, text: &str, settings: &str) -> Result<TopLevelGrammar> {
    if tag != "json_schema" {
        return TopLevelGrammar::from_tagged_str(tag, text);
    }
    let mut schema: Value = serde_json::from_str(text)?;
    if let Value::Object(fields) = &mut schema {
        fields.insert("x-guidance".into(), serde_json::from_str(settings)?);
    }
    Ok(TopLevelGrammar::from_json_schema(schema))
}

/// Another that has heard the same.
#[no_mangle]
pub extern "C" fn copy(matcher: &Matcher) -> *mut Matcher {
    Box::into_raw(Box::new(matcher.deep_clone()))
}

/// The end of one.
///
/// # Safety
/// It is of `read` or `copy`, and not named again.
#[no_mangle]
pub unsafe extern "C" fn discard(matcher: *mut Matcher) {
    drop(Box::from_raw(matcher));
}

/// 1: nothing may follow, + 2: it has failed.
#[no_mangle]
pub extern "C" fn state(matcher: &Matcher) -> u32 {
    u32::from(matcher.is_stopped()) | u32::from(matcher.is_error()) << 1
}

/// Why it has failed, as told.
#[no_mangle]
pub extern "C" fn why(matcher: &Matcher) -> usize {
    tell(matcher.get_error().unwrap_or_default())
}

/// The bits of the tokens that may follow, as told: of end tokens, once it has failed.
#[no_mangle]
pub extern "C" fn allowed(matcher: &mut Matcher) -> usize {
    let mask = matcher
        .compute_mask_or_eos()
        .unwrap_or_else(|_| end_tokens());
    tell_words(mask.as_slice())
}

fn end_tokens() -> SimpleVob {
    FACTORY.with_borrow(|factory| match factory {
        Some(factory) => factory.tok_env().tok_trie().eos_token_set(),
        None => SimpleVob::new(),
    })
}

/// A token was said.
#[no_mangle]
pub extern "C" fn accept(matcher: &mut Matcher, token: TokenId) {
    let _ = matcher.consume_token(token); // the matcher keeps what was wrong
}

/// Tokens that must follow, as told.
#[no_mangle]
pub extern "C" fn forced(matcher: &mut Matcher) -> usize {
    tell_words(&matcher.compute_ff_tokens())
}

/// Seeds of hash tables; the host's own memory is all that there is to be found out.
#[no_mangle]
unsafe extern "Rust" fn __getrandom_v03_custom(
    at: *mut u8,
    length: usize,
) -> std::result::Result<(), getrandom::Error> {
    at.write_bytes(0x5a, length);
    Ok(())
}
