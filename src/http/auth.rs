//! Who calls: a bearer token, its tenant and its role. What a role may do is decided here, and nowhere else.
//!
//! Tokens are kept as SHA-256 only; neither a token nor its hash is ever logged or sent.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use actix_web::http::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use super::{Api, ApiError};
use crate::store::StoreError;
use crate::store::tokens::{self, TokenRow};

/// A revoked token may be believed this long by the replicas that did not revoke it.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// A fresh token may be refused this long where it was tried before it existed.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// Entries of either kind; whoever sends made-up tokens fills only the list of unknown ones.
const ENTRIES_MAX: usize = 1_000;

/// The name of the environment's token in the audit; no stored token may have it.
pub const ENVIRONMENT_ADMIN: &str = "environment-admin";

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The judge's back end: submits, and reads its tenant's submissions.
    Client,
    /// Reads its tenant's submissions and the service's status.
    Viewer,
    /// A viewer who may also act: submit, redrive, rejudge, pause.
    Operator,
    /// An operator who may also make and delete tokens of its tenant.
    Admin,
}

impl Role {
    /// All roles, the least powerful first.
    pub const ALL: [Role; 4] = [Role::Client, Role::Viewer, Role::Operator, Role::Admin];

    /// The word used in the database and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// The role of that word.
    pub fn of(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Make submissions.
    Submit,
    /// Read submissions.
    Read,
    /// See the service itself: actors, lanes.
    ReadStatus,
    /// Make and delete tokens.
    ManageTokens,
}

impl Permission {
    const fn is_given_to(self, role: Role) -> bool {
        match self {
            Permission::Submit => !matches!(role, Role::Viewer),
            Permission::Read => true,
            Permission::ReadStatus => !matches!(role, Role::Client),
            Permission::ManageTokens => matches!(role, Role::Admin),
        }
    }

    const fn roles(self) -> &'static str {
        match self {
            Permission::Submit => "client, operator, admin",
            Permission::Read => "client, viewer, operator, admin",
            Permission::ReadStatus => "viewer, operator, admin",
            Permission::ManageTokens => "admin",
        }
    }
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The token's name, for the audit.
    pub name: String,
    /// Whose submissions it sees and makes.
    pub tenant: String,
    /// What it may do.
    pub role: Role,
    /// Is it the environment's token? Only that one reaches beyond its tenant.
    pub is_environment_admin: bool,
}

/// The caller of this request, if it may do what it wants to do.
pub async fn caller(api: &Api, request: &HttpRequest, permission: Permission) -> Result<Caller, ApiError> {
    let mut caller = authenticate(api, request).await?;
    if !permission.is_given_to(caller.role) {
        return Err(ApiError::Forbidden(permission.roles()));
    }
    if let Some(tenant) = tenant_asked_for(request)? {
        if !caller.is_environment_admin && tenant != caller.tenant {
            return Err(ApiError::Forbidden("the administrator's token of the environment, for another tenant"));
        }
        caller.tenant = tenant;
    }
    Ok(caller)
}

/// `?tenant=`, which is part of every address that needs a token.
fn tenant_asked_for(request: &HttpRequest) -> Result<Option<String>, ApiError> {
    let query = super::query::Query::parse(request.query_string());
    super::query::single_id(&query, "tenant").map_err(|problem| ApiError::Invalid(vec![problem]))
}

async fn authenticate(api: &Api, request: &HttpRequest) -> Result<Caller, ApiError> {
    let token = bearer(request).ok_or(ApiError::Unauthenticated)?;
    let hash = hash_of(token);
    if api.admin_token_hash.is_some_and(|admin| bool::from(admin.ct_eq(&hash))) {
        let (name, tenant) = (ENVIRONMENT_ADMIN.to_owned(), api.admin_tenant.clone());
        return Ok(Caller { name, tenant, role: Role::Admin, is_environment_admin: true });
    }
    let remembered = api.tokens.get(&hash, Instant::now());
    let found = match remembered {
        Some(answer) => answer,
        None => {
            let row = api.store(tokens::find(&api.pool, &hash)).await?;
            let found = row.map(caller_of).transpose()?;
            api.tokens.put(hash, found.clone(), Instant::now());
            found
        }
    };
    found.ok_or(ApiError::Unauthenticated)
}

fn caller_of(row: TokenRow) -> Result<Caller, ApiError> {
    let unknown = || StoreError::Refused(format!("token {:?} has a role this version does not know", row.name));
    let role = Role::of(&row.role).ok_or_else(unknown)?;
    Ok(Caller { name: row.name, tenant: row.tenant, role, is_environment_admin: false })
}

/// The token of the only `Authorization` header.
fn bearer(request: &HttpRequest) -> Option<&str> {
    let mut headers = request.headers().get_all(AUTHORIZATION);
    let (header, more) = (headers.next()?, headers.next());
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    let is_usable = more.is_none() && scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    is_usable.then_some(token)
}

/// SHA-256 of a token: the form in which tokens are stored and configured.
pub fn hash_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// What PostgreSQL said of tokens lately, so that it is not asked for every request.
#[derive(Default)]
pub(super) struct TokenCache {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    known: HashMap<[u8; 32], (Instant, Caller)>,
    unknown: HashMap<[u8; 32], Instant>,
}

impl TokenCache {
    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        // The maps are whole after every statement, so a panic elsewhere does not make them wrong.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: ask PostgreSQL. `Some(None)`: there is no such token.
    fn get(&self, hash: &[u8; 32], now: Instant) -> Option<Option<Caller>> {
        let entries = self.entries();
        let is_fresh = |since: &Instant, limit| now.saturating_duration_since(*since) < limit;
        match entries.known.get(hash) {
            Some((since, caller)) if is_fresh(since, KNOWN_FOR) => Some(Some(caller.clone())),
            _ => entries.unknown.get(hash).filter(|since| is_fresh(since, UNKNOWN_FOR)).map(|_| None),
        }
    }

    fn put(&self, hash: [u8; 32], found: Option<Caller>, now: Instant) {
        let entries = &mut *self.entries();
        match found {
            Some(caller) => {
                if entries.known.len() >= ENTRIES_MAX {
                    entries.known.retain(|_, (since, _)| now.saturating_duration_since(*since) < KNOWN_FOR);
                }
                if entries.known.len() >= ENTRIES_MAX {
                    entries.known.clear();
                }
                entries.unknown.remove(&hash);
                entries.known.insert(hash, (now, caller));
            }
            None => {
                if entries.unknown.len() >= ENTRIES_MAX {
                    entries.unknown.clear();
                }
                entries.unknown.insert(hash, now);
            }
        }
    }

    /// Forgets a token that was revoked.
    pub(super) fn forget(&self, name: &str) {
        self.entries().known.retain(|_, (_, caller)| caller.name != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn someone(name: &str) -> Caller {
        let (name, tenant) = (name.to_owned(), "t".to_owned());
        Caller { name, tenant, role: Role::Client, is_environment_admin: false }
    }

    fn number(n: usize) -> [u8; 32] {
        hash_of(&n.to_string())
    }

    #[test]
    fn what_is_known_of_a_token_ends_by_itself() {
        let (cache, start) = (TokenCache::default(), Instant::now());
        cache.put(number(1), Some(someone("a")), start);
        cache.put(number(2), None, start);
        assert_eq!(cache.get(&number(1), start + KNOWN_FOR / 2), Some(Some(someone("a"))));
        assert_eq!(cache.get(&number(1), start + KNOWN_FOR), None);
        assert_eq!(cache.get(&number(2), start + UNKNOWN_FOR / 2), Some(None));
        assert_eq!(cache.get(&number(2), start + UNKNOWN_FOR), None);
    }

    #[test]
    fn made_up_tokens_neither_grow_the_cache_nor_push_out_good_ones() {
        let (cache, start) = (TokenCache::default(), Instant::now());
        cache.put(number(0), Some(someone("a")), start);
        for n in 1..3 * ENTRIES_MAX {
            cache.put(number(n), None, start);
        }
        assert!(cache.entries().unknown.len() <= ENTRIES_MAX);
        assert_eq!(cache.get(&number(0), start), Some(Some(someone("a"))));
    }

    #[test]
    fn good_tokens_are_bounded_too() {
        let (cache, start) = (TokenCache::default(), Instant::now());
        for n in 0..3 * ENTRIES_MAX {
            cache.put(number(n), Some(someone("a")), start);
        }
        assert!(cache.entries().known.len() <= ENTRIES_MAX);
    }

    #[test]
    fn a_token_that_was_made_after_it_was_tried_is_believed() {
        let (cache, start) = (TokenCache::default(), Instant::now());
        cache.put(number(1), None, start);
        cache.put(number(1), Some(someone("a")), start);
        assert_eq!(cache.get(&number(1), start), Some(Some(someone("a"))));
        cache.forget("a");
        assert_eq!(cache.get(&number(1), start), None);
    }

    #[test]
    fn each_role_may_do_what_its_description_says() {
        let may = |role| {
            [Permission::Submit, Permission::Read, Permission::ReadStatus, Permission::ManageTokens]
                .map(|permission| permission.is_given_to(role))
        };
        assert_eq!(may(Role::Client), [true, true, false, false]);
        assert_eq!(may(Role::Viewer), [false, true, true, false]);
        assert_eq!(may(Role::Operator), [true, true, true, false]);
        assert_eq!(may(Role::Admin), [true, true, true, true]);
    }

    #[test]
    fn the_roles_in_a_refusal_are_those_that_would_be_let_in() {
        for permission in [Permission::Submit, Permission::Read, Permission::ReadStatus, Permission::ManageTokens] {
            let let_in: Vec<&str> =
                Role::ALL.into_iter().filter(|role| permission.is_given_to(*role)).map(Role::as_str).collect();
            assert_eq!(let_in.join(", "), permission.roles());
        }
    }
}
