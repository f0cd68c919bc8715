//! llguidance behind functions of numbers, for JavaScript (`web/src/worker/grammar.ts`, the only caller).
//!
//! One instance of the module has one tokenizer and any number of matchers, which are addresses.
//! Text arguments are in memory of `reserve`. A call returns a number; further results are at
//! `result` until the next call. After a panic, which is a trap, the instance is unusable.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{bail, ensure, Result};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{token_bytes_from_tokenizer_json, Matcher, ParserFactory};
use serde_json::Value;

#[link(wasm_import_module = "env")]
extern "C" {
    /// Writes the tokens of a text in UTF-8, at most `capacity`; returns their number.
    fn tokenize(text: *const u8, length: usize, out: *mut TokenId, capacity: usize) -> usize;
}

thread_local! {
    static FACTORY: RefCell<Option<ParserFactory>> = const { RefCell::new(None) };
    static RESULT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Tokens as the model's own tokenizer makes them, where it writes a text as it is.
struct Tokens {
    trie: TokTrie,
    canonical: bool,
}

impl Tokens {
    fn new(trie: TokTrie) -> Self {
        let probe = br#"{"a": [1, "b c"]}"#;
        let canonical = trie.decode(&tokenized(probe)) == probe;
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
            .tokenize_with_greedy_fallback(bytes, |text| tokenized(text.as_bytes()))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}

fn tokenized(text: &[u8]) -> Vec<TokenId> {
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

fn set_result(bytes: impl Into<Vec<u8>>) -> usize {
    RESULT.with_borrow_mut(|result| {
        *result = bytes.into();
        result.len()
    })
}

fn set_result_words(words: &[u32]) -> usize {
    set_result(
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
}

/// The address of the last result.
#[no_mangle]
pub extern "C" fn result() -> *const u8 {
    RESULT.with_borrow(|result| result.as_ptr())
}

/// Memory for a text argument, which is freed by the call that gets it.
#[no_mangle]
pub extern "C" fn reserve(length: usize) -> *mut u8 {
    Box::into_raw(vec![0u8; length].into_boxed_slice()).cast()
}

unsafe fn taken(at: *mut u8, length: usize) -> Vec<u8> {
    Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, length)).into_vec()
}

/// Open a model's tokenizer.json, with the ids that end answers. Returns 0, or the length of an
/// error message.
///
/// # Safety
/// Both arguments are from `reserve`.
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
        Err(why) => set_result(why.to_string()),
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

/// The bytes of a token, as the result. Returns their number.
#[no_mangle]
pub extern "C" fn text(token: TokenId) -> usize {
    set_result(with_trie(|trie| trie.token(token).to_vec()))
}

/// The tokens whose bytes contain a quotation mark, as the result.
#[no_mangle]
pub extern "C" fn quote_tokens() -> usize {
    let tokens = with_trie(|trie| {
        (0..trie.vocab_size() as TokenId)
            .filter(|&token| trie.token(token).contains(&b'"'))
            .collect::<Vec<_>>()
    });
    set_result_words(&tokens)
}

fn with_trie<T: Default>(use_trie: impl FnOnce(&TokTrie) -> T) -> T {
    FACTORY.with_borrow(|factory| match factory {
        Some(factory) => use_trie(factory.tok_env().tok_trie()),
        None => T::default(),
    })
}

/// A new matcher of a grammar of kind `tag` (`json_schema`, `regex`, `lark`); `settings`: JSON of
/// llguidance's options for schemas. An error is reported by the matcher's `state` and `why`.
///
/// # Safety
/// All three arguments are from `reserve`.
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

/// A copy with the same accepted tokens.
#[no_mangle]
pub extern "C" fn copy(matcher: &Matcher) -> *mut Matcher {
    Box::into_raw(Box::new(matcher.deep_clone()))
}

/// Free a matcher.
///
/// # Safety
/// It is from `read` or `copy`, and not used again.
#[no_mangle]
pub unsafe extern "C" fn discard(matcher: *mut Matcher) {
    drop(Box::from_raw(matcher));
}

/// Bit 0: no token may follow; bit 1: the matcher has failed.
#[no_mangle]
pub extern "C" fn state(matcher: &Matcher) -> u32 {
    u32::from(matcher.is_stopped()) | u32::from(matcher.is_error()) << 1
}

/// The error message of a failed matcher, as the result. Returns its length.
#[no_mangle]
pub extern "C" fn why(matcher: &Matcher) -> usize {
    set_result(matcher.get_error().unwrap_or_default())
}

/// The mask of the tokens that may follow, as the result: only end tokens after a failure.
#[no_mangle]
pub extern "C" fn allowed(matcher: &mut Matcher) -> usize {
    let mask = matcher
        .compute_mask_or_eos()
        .unwrap_or_else(|_| end_tokens());
    set_result_words(mask.as_slice())
}

fn end_tokens() -> SimpleVob {
    FACTORY.with_borrow(|factory| match factory {
        Some(factory) => factory.tok_env().tok_trie().eos_token_set(),
        None => SimpleVob::new(),
    })
}

/// Advance by a generated token.
#[no_mangle]
pub extern "C" fn accept(matcher: &mut Matcher, token: TokenId) {
    let _ = matcher.consume_token(token); // the matcher keeps the error
}

/// Tokens that must follow, as the result.
#[no_mangle]
pub extern "C" fn forced(matcher: &mut Matcher) -> usize {
    set_result_words(&matcher.compute_ff_tokens())
}

/// Seeds of hash tables. Constant: the module protects no secrets.
#[no_mangle]
unsafe extern "Rust" fn __getrandom_v03_custom(
    at: *mut u8,
    length: usize,
) -> std::result::Result<(), getrandom::Error> {
    at.write_bytes(0x5a, length);
    Ok(())
}
