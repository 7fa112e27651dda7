//! The private directory of one store, and the removal of those that killed owners left behind.
//! Not the data's format: the servers fill it.
//!
//! Each directory holds a lock file that its owner keeps locked. The kernel drops the lock when the owner ends in any
//! way, so "can I lock it?" asks whether the owner is gone, which a process id in a file could not tell for sure.

use std::{
    env,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{StoreError, programs::Account};

const PREFIX: &str = "judge-relay-store-";
const LOCK: &str = "owner.lock";

/// A directory that only the servers' user enters, removed on drop.
pub(super) struct StoreDirectory {
    directory: TempDir,
    account: Option<Account>,
    _lock: File,
}

impl StoreDirectory {
    /// Makes a directory of mode 0700 under the system's temporary directory, after sweeping abandoned ones.
    pub(super) fn create(account: Option<Account>) -> Result<Self, StoreError> {
        let parent = env::temp_dir();
        sweep(&parent, account);
        let failed = |source| StoreError::Directory { path: parent.clone(), source };
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&parent)
            .map_err(failed)?;
        let lock = lock_as_owner(directory.path()).map_err(failed)?;
        give(directory.path(), account).map_err(failed)?;
        Ok(Self { directory, account, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes an empty directory inside, for the servers' user alone.
    pub(super) fn make_directory(&self, name: &str) -> Result<PathBuf, StoreError> {
        let path = self.path().join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&path).and_then(|()| give(&path, self.account));
        made.map(|()| path.clone()).map_err(|source| StoreError::Directory { path, source })
    }

    /// Writes a file inside, for the servers' user alone.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, StoreError> {
        let path = self.path().join(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o600)))
            .and_then(|()| give(&path, self.account));
        written.map(|()| path.clone()).map_err(|source| StoreError::Directory { path, source })
    }
}

fn give(path: &Path, account: Option<Account>) -> io::Result<()> {
    account.map_or(Ok(()), |Account { user, group }| chown(path, Some(user), Some(group)))
}

/// The lock gets its name only after it is held: whoever sees a lock file that is not locked may conclude that the
/// owner is gone, not that it is just starting.
fn lock_as_owner(directory: &Path) -> io::Result<File> {
    let unnamed = directory.join("owner.new");
    let lock = File::create_new(&unnamed)?;
    lock.lock()?;
    fs::rename(&unnamed, directory.join(LOCK))?;
    Ok(lock)
}

/// Removes the directories whose owner is gone. What cannot be removed is left: it hurts nobody but the disk.
fn sweep(parent: &Path, account: Option<Account>) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let named_like_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if named_like_ours
            && is_abandoned(&entry.path(), account)
            && let Err(error) = fs::remove_dir_all(entry.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            log::warn!("cannot remove the abandoned {}: {error}", entry.path().display());
        }
    }
}

/// Whether it is a directory of ours that nobody holds. In a shared temporary directory anyone may use our prefix:
/// another user's directory, a symbolic link or a pipe instead of the lock file is not ours to touch.
fn is_abandoned(directory: &Path, account: Option<Account>) -> bool {
    let servers_user = account.map_or_else(|| rustix::process::geteuid().as_raw(), |account| account.user);
    let is_ours = fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir() && found.uid() == servers_user);
    let lock = directory.join(LOCK);
    let is_lock = fs::symlink_metadata(&lock).is_ok_and(|found| found.is_file());
    is_ours && is_lock && File::open(&lock).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_directory_survives_a_sweep_and_an_abandoned_one_does_not() {
        let parent = tempfile::tempdir().unwrap();
        let [held, abandoned, unnamed] =
            ["held", "abandoned", "unnamed"].map(|name| parent.path().join(format!("{PREFIX}{name}")));
        for directory in [&held, &abandoned, &unnamed] {
            fs::create_dir(directory).unwrap();
        }
        let _lock = lock_as_owner(&held).unwrap();
        drop(lock_as_owner(&abandoned).unwrap());

        sweep(parent.path(), None);

        assert!(held.exists(), "its owner is alive");
        assert!(!abandoned.exists(), "its owner is gone");
        assert!(unnamed.exists(), "without a lock file it may be one that is just being made");
    }

    #[test]
    fn another_users_directory_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let foreign = parent.path().join(format!("{PREFIX}foreign"));
        fs::create_dir(&foreign).unwrap();
        drop(lock_as_owner(&foreign).unwrap());
        let mine = rustix::process::geteuid().as_raw();

        sweep(parent.path(), Some(Account { user: mine.wrapping_add(1), group: 0 }));

        assert!(foreign.exists());
    }
}
