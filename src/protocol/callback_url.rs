//! The address that the controller calls back, and the tag in it that proves the address is ours.
//!
//! Not the callback's body and not its effect: only who may speak for which attempt.

use std::fmt;

use hmac::Mac;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::heng::signing::{HmacSha256, keyed_mac};
use super::{CallbackKind, Generation, JudgeId, SubmissionId};

/// Shorter secrets could be guessed offline from one address.
pub const SECRET_BYTES_MIN: usize = 32;

/// Key ids are in every address, so they are kept short.
pub const KEY_ID_BYTES_MAX: usize = 16;

/// A tag is this many hex digits.
const TAG_DIGITS: usize = 64;

/// The keys of the tags. The first signs, all verify. Secrets cannot be read back.
#[derive(Clone)]
pub struct CallbackKeys {
    signing: Key,
    retired: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: String,
    mac: HmacSha256,
}

impl CallbackKeys {
    /// Reads `id:secret,id:secret`, the signing key first. Lists every problem; none of them shows a secret.
    ///
    /// A secret may hold anything but a comma, colons included.
    pub fn parse(text: &str) -> Result<CallbackKeys, Vec<String>> {
        let mut problems = Vec::new();
        let mut keys: Vec<Key> = Vec::new();
        for (at, entry) in text.split(',').enumerate() {
            let place = format!("callback key {}", at + 1);
            let Some((id, secret)) = entry.trim().split_once(':') else {
                problems.push(format!("{place} is not of the form id:secret"));
                continue;
            };
            if !is_key_id(id) {
                problems.push(format!("{place} has an id that is not 1 to {KEY_ID_BYTES_MAX} of a-z and 0-9"));
            } else if keys.iter().any(|key| key.id == id) {
                problems.push(format!("{place} has the id {id:?}, which another key has already"));
            }
            if secret.len() < SECRET_BYTES_MIN {
                let size = secret.len();
                problems
                    .push(format!("{place} has a secret of {size} bytes; use at least {SECRET_BYTES_MIN} random ones"));
            }
            keys.push(Key { id: id.to_owned(), mac: keyed_mac(secret.as_bytes()) });
        }
        let mut keys = keys.into_iter();
        match keys.next() {
            Some(signing) if problems.is_empty() => Ok(CallbackKeys { signing, retired: keys.collect() }),
            _ => Err(problems),
        }
    }

    /// The ids, the signing key's first. They are no secrets.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.all().map(|key| key.id.as_str())
    }

    /// The address to give to the controller: `{base}/heng/{kind}/{submission}/{judge id}?g=…&k=…&t=…`.
    pub fn url(
        &self,
        base: &str,
        kind: CallbackKind,
        submission: SubmissionId,
        generation: Generation,
        judge_id: JudgeId,
    ) -> String {
        let base = base.trim_end_matches('/');
        let tag = self.signing.tag(kind, submission, generation, judge_id);
        format!("{base}/heng/{kind}/{submission}/{judge_id}?g={generation}&k={}&t={tag}", self.signing.id)
    }

    /// Believes a callback, or not, by its address alone. `submission_text` and `judge_id_text` are path segments, the
    /// query is without its question mark; parameters that are not ours are ignored.
    pub fn verify(
        &self,
        kind: CallbackKind,
        submission_text: &str,
        judge_id_text: &str,
        query_text: &str,
    ) -> Result<AuthenticCallback, Rejection> {
        let submission = submission_of(submission_text).ok_or(Rejection::Malformed)?;
        let judge_id = judge_id_text.parse().map_err(|_| Rejection::Malformed)?;
        let generation = the_only(query_text, "g").and_then(generation_of).ok_or(Rejection::Malformed)?;
        let key_id = the_only(query_text, "k").filter(|id| is_key_id(id)).ok_or(Rejection::Malformed)?;
        let tag = the_only(query_text, "t").filter(|tag| is_tag(tag)).ok_or(Rejection::Malformed)?;
        let key = self.all().find(|key| key.id == key_id).ok_or(Rejection::UnknownKey)?;
        let expected = key.tag(kind, submission, generation, judge_id);
        if expected.as_bytes().ct_eq(tag.as_bytes()).into() {
            Ok(AuthenticCallback { kind, submission, generation, judge_id })
        } else {
            Err(Rejection::WrongTag)
        }
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.signing).chain(&self.retired)
    }
}

impl fmt::Debug for CallbackKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

impl Key {
    fn tag(&self, kind: CallbackKind, submission: SubmissionId, generation: Generation, judge_id: JudgeId) -> String {
        let mut mac = self.mac.clone();
        mac.update(format!("v1|{kind}|{submission}|{generation}|{judge_id}").as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }
}

/// A callback whose address carries our tag. Only [`CallbackKeys::verify`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticCallback {
    kind: CallbackKind,
    submission: SubmissionId,
    generation: Generation,
    judge_id: JudgeId,
}

impl AuthenticCallback {
    /// Which of the two callbacks.
    pub fn kind(&self) -> CallbackKind {
        self.kind
    }

    /// Whose result it is.
    pub fn submission(&self) -> SubmissionId {
        self.submission
    }

    /// Of which judging.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Of which attempt.
    pub fn judge_id(&self) -> JudgeId {
        self.judge_id
    }
}

/// Why a callback is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Not of the form of our addresses.
    Malformed,
    /// Names a key that is not in the list.
    UnknownKey,
    /// The tag belongs to another address, or was made up.
    WrongTag,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::Malformed => "the address is not of the form of a callback address",
            Rejection::UnknownKey => "the address names a callback key that is not configured",
            Rejection::WrongTag => "the tag does not fit the address",
        })
    }
}

impl std::error::Error for Rejection {}

impl Rejection {
    /// The word used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rejection::Malformed => "malformed",
            Rejection::UnknownKey => "unknown_key",
            Rejection::WrongTag => "wrong_tag",
        }
    }
}

fn is_key_id(text: &str) -> bool {
    let is_accepted = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    (1..=KEY_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_accepted)
}

fn is_tag(text: &str) -> bool {
    text.len() == TAG_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Only the spelling that we print, so that one callback has one address.
fn submission_of(text: &str) -> Option<SubmissionId> {
    let id = Uuid::try_parse(text).map(SubmissionId).ok()?;
    (id.to_string() == text).then_some(id)
}

fn generation_of(text: &str) -> Option<Generation> {
    let generation = text.parse().map(Generation).ok()?;
    (generation.to_string() == text).then_some(generation)
}

/// The value of a parameter that must be there exactly once. Our values need no escapes, so none are decoded.
fn the_only<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut values = query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
    let (_, value) = values.next()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "old:0123456789abcdef0123456789abcdef";
    /// Secrets may hold colons.
    const NEW: &str = "new1:fedcba9876543210:fedcba9876543210";
    const BASE: &str = "http://relay.example.com:8080/base";

    fn keys(text: &str) -> CallbackKeys {
        CallbackKeys::parse(text).expect("keys")
    }

    fn ids() -> (SubmissionId, Generation, JudgeId) {
        let submission = SubmissionId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab));
        (submission, Generation(3), JudgeId(Uuid::from_u128(0x1234_5678_9abc_4def_8123_4567_89ab_cdef)))
    }

    fn url_of(keys: &CallbackKeys, kind: CallbackKind) -> String {
        let (submission, generation, judge_id) = ids();
        keys.url(BASE, kind, submission, generation, judge_id)
    }

    /// Verifies the parts of an address as the door would cut them.
    fn verified(keys: &CallbackKeys, url: &str) -> Result<AuthenticCallback, Rejection> {
        let (path, query) = url.strip_prefix(BASE).expect("base").split_once('?').expect("query");
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let kind = if segments[1] == "update" { CallbackKind::Update } else { CallbackKind::Finish };
        keys.verify(kind, segments[2], segments[3], query)
    }

    #[test]
    fn addresses_have_the_documented_form() {
        let url = url_of(&keys(OLD), CallbackKind::Finish);
        let start = format!(
            "{BASE}/heng/finish/01900000-0000-7000-8000-0000000000ab/123456789abc4def8123456789abcdef?g=3&k=old&t="
        );
        let tag = url.strip_prefix(&start).expect("form");
        let mut mac = keyed_mac(b"0123456789abcdef0123456789abcdef");
        mac.update(b"v1|finish|01900000-0000-7000-8000-0000000000ab|3|123456789abc4def8123456789abcdef");
        assert_eq!(tag, hex::encode(mac.finalize().into_bytes()));
        let (submission, generation, judge_id) = ids();
        let with_slash = keys(OLD).url("http://a.example.com/", CallbackKind::Update, submission, generation, judge_id);
        assert!(with_slash.starts_with("http://a.example.com/heng/update/"));
    }

    #[test]
    fn two_of_the_longest_addresses_fit_into_the_room_that_requests_leave() {
        use crate::protocol::heng::request::{CALLBACK_BASE_BYTES_MAX, CALLBACK_URLS_BYTES_MAX, with_callback_urls};
        let keys = keys("k123456789abcdef:0123456789abcdef0123456789abcdef");
        let base = "b".repeat(CALLBACK_BASE_BYTES_MAX);
        let (submission, _, judge_id) = ids();
        let url = |kind| keys.url(&base, kind, submission, Generation(i32::MAX), judge_id);
        let sent = with_callback_urls("{}", &url(CallbackKind::Update), &url(CallbackKind::Finish));
        assert!(sent.len() <= CALLBACK_URLS_BYTES_MAX, "{}", sent.len());
    }

    #[test]
    fn what_was_signed_is_believed() {
        let keys = keys(OLD);
        for kind in [CallbackKind::Update, CallbackKind::Finish] {
            let callback = verified(&keys, &url_of(&keys, kind)).expect("authentic");
            assert_eq!(callback.kind(), kind);
            assert_eq!((callback.submission(), callback.generation(), callback.judge_id()), ids());
        }
    }

    #[test]
    fn the_first_key_signs_and_retired_keys_verify() {
        let both = keys(&format!("{NEW},{OLD}"));
        assert!(url_of(&both, CallbackKind::Finish).contains("&k=new1&"));
        assert!(verified(&both, &url_of(&keys(OLD), CallbackKind::Finish)).is_ok());
        assert!(verified(&both, &url_of(&both, CallbackKind::Finish)).is_ok());
        assert_eq!(verified(&keys(OLD), &url_of(&both, CallbackKind::Finish)), Err(Rejection::UnknownKey));
    }

    #[test]
    fn every_forged_part_is_rejected() {
        let keys = keys(OLD);
        let url = url_of(&keys, CallbackKind::Finish);
        for (from, to) in
            [("finish", "update"), ("00ab/", "00ac/"), ("/1234", "/1235"), ("g=3", "g=4"), ("g=3", "g=-3")]
        {
            assert_eq!(verified(&keys, &url.replacen(from, to, 1)), Err(Rejection::WrongTag), "{from} {to}");
        }
        for at in url.len() - TAG_DIGITS..url.len() {
            let mut forged = url.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).expect("text");
            assert_eq!(verified(&keys, &forged), Err(Rejection::WrongTag));
        }
        let other_secret = self::keys("old:0123456789abcdef0123456789abcdeX");
        assert_eq!(verified(&other_secret, &url), Err(Rejection::WrongTag));
    }

    #[test]
    fn only_the_spelling_that_we_print_is_read() {
        let keys = keys(OLD);
        let url = url_of(&keys, CallbackKind::Finish);
        let (start, tag) = url.split_at(url.len() - TAG_DIGITS);
        let upper_tag = format!("{start}{}", tag.to_uppercase());
        assert_ne!(upper_tag, url);
        for malformed in [
            upper_tag,
            url.replacen("01900000-0000", "019000000000", 1),
            url.replacen("00ab/", "00AB/", 1),
            url.replacen("123456789abc4def", "123456789ABC4DEF", 1),
            url.replacen("g=3", "g=03", 1),
            url.replacen("g=3", "g=+3", 1),
            url.replacen("g=3", "g=", 1),
            url.replacen("g=3", "g=99999999999", 1),
            url.replacen("g=3&", "", 1),
            url.replacen("k=old", "k=OLD", 1),
            url.replacen("k=old", "k=", 1),
            url.replacen("k=old&", "", 1),
            url.replacen("g=3", "g=3&g=3", 1),
            format!("{url}&k=old"),
            format!("{url}&t={tag}"),
            format!("{start}{}", &tag[1..]),
            format!("{url}0"),
            format!("{start}%{}", &tag[1..]),
            start.to_owned(),
        ] {
            assert_eq!(verified(&keys, &malformed), Err(Rejection::Malformed), "{malformed}");
        }
        assert_eq!(keys.verify(CallbackKind::Finish, "", "", ""), Err(Rejection::Malformed));
    }

    #[test]
    fn parameters_of_others_are_ignored() {
        let keys = keys(OLD);
        let url = url_of(&keys, CallbackKind::Finish);
        assert!(verified(&keys, &url.replacen('?', "?utm=1&&x&G=4&", 1)).is_ok());
        assert!(verified(&keys, &format!("{url}&trace=t")).is_ok());
    }

    #[test]
    fn all_problems_of_a_key_list_are_reported_without_secrets() {
        let text = format!("{OLD},UP:{},old:short-secret,nothing,toolongtoolong123:{0},:{0}", "s".repeat(32));
        let problems = CallbackKeys::parse(&text).expect_err("problems");
        assert_eq!(
            problems,
            [
                "callback key 2 has an id that is not 1 to 16 of a-z and 0-9",
                "callback key 3 has the id \"old\", which another key has already",
                "callback key 3 has a secret of 12 bytes; use at least 32 random ones",
                "callback key 4 is not of the form id:secret",
                "callback key 5 has an id that is not 1 to 16 of a-z and 0-9",
                "callback key 6 has an id that is not 1 to 16 of a-z and 0-9",
            ]
        );
        assert_eq!(CallbackKeys::parse("").expect_err("empty"), ["callback key 1 is not of the form id:secret"]);
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        let shown = format!("{:?}", keys(OLD));
        assert_eq!(shown, r#"["old"]"#);
    }
}
