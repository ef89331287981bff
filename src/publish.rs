//! The commit point: appending a member to the numbered sequence of a directory.
//!
//! Owns: that each number is taken once, that a lost reply is settled, and that a writer that was replaced notices.
//! Does not own: what a member says (`coordinator`), bytes and names (`lowtide-format`).
//!
//! A member with number *n* + 1 is created only if absent, by a writer that knows member *n*. The newest member alone
//! carries the truth; older ones are deleted. Deleting them must not let a writer that was paused create a number that
//! was taken before: it would believe that it is the truth. Hence these rules.
//!
//! # Rules and why they suffice
//!
//! - S1. A member is deleted only by somebody who has verified a member two numbers above it, and in ascending order:
//!   the next one only after the delete of this one was confirmed.
//! - S2. After creating *n* + 1 the writer reads *n* and compares the token with the one it knows. Only then is the
//!   member verified, and only then does anybody act on it.
//! - S3. Every create has a token of its own.
//!
//! Claim: a verified member is the first at its number. Suppose *n* + 1 had existed before. As the create succeeded, it
//! had been deleted, so by S1 the delete of *n* had been confirmed before, so the object that the writer finds at *n*
//! afterwards was created a second time. That was the work of another create than the first, hence with another token
//! (S3), and the writer, which knows the first, refuses it. Reads of a single object are all that is used; a
//! listing may be as stale as it likes. ∎
//!
//! The first member of a directory has no predecessor. There the writer lists once more and must find nothing above.
//! A take-over, which starts from a listing, lists once more as well.
//!
//! A member that was created and not verified is a stray: it lies below the newest, nobody reads it, its writer deletes
//! it, and so does the next take-over.
//!
//! A newest member that is damaged ends the sequence: whoever needs it gets an error that names it, and nobody appends.
//! To go on from the member before it would be wrong in three ways. It may have published a checkpoint, which would be
//! lost and its files swept. It may have let one go whose files are deleted, which would be listed again. And where
//! "damaged" is only what a reader sees of a create that is still being made visible, its writer would verify it and act
//! on it while the other's member, which does not know it, is the newest. Only a reader that takes over nothing may look
//! past it ([`newest_sound_member`]): what it finds is checked file by file.
//!
//! Assumed of a store: a create-if-absent is atomic, a read sees every write that was answered before, and a create is
//! not applied long after its caller gave up *and* the object was created by a repetition and deleted again. Until a
//! doubtful create is settled by another member at its number, everything that it names is kept.

use std::collections::BTreeSet;

use bytes::Bytes;
use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{
    Compression, CreateOutcome, DecodeLimits, ObjectClass, ObjectPath, Outcome, SequenceMember, SequenceStep,
    Store,
};

use crate::error::{Error, ErrorKind, Result};

/// How often a create is repeated that did not happen.
const ATTEMPTS_MAX: usize = 5;

/// How often a listing is repeated whose newest member was deleted before it could be read.
const LISTINGS_MAX: usize = 16;

/// Why a member was not appended.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// Another coordinator has taken over. `answered` says that every attempt of this member was answered: it then
    /// never took effect.
    Fenced { error: Error, answered: bool },
    /// It did not happen.
    NotApplied(Error),
    /// It had not happened when last looked at, but an attempt was not answered.
    Doubtful(Error),
    /// Whether it happened could not be found out.
    Unreadable(Error),
    /// A sweep took the number for its boundary. The head has moved on: decide anew.
    Moved,
    /// An earlier member that was in doubt is there. The head has moved on to it: decide anew.
    Settled(Box<SequenceMember>),
}

/// What became of the members in doubt.
#[derive(Debug)]
pub(crate) enum Settlement {
    /// There are none.
    Nothing,
    /// This one was appended.
    Applied(Box<SequenceMember>),
    /// Another member is at their number: none of them was appended.
    Refused,
    /// Nothing is at their number, so far.
    Absent,
}

/// The sequence of a directory, as its one writer sees it.
#[derive(Debug)]
pub(crate) struct Sequence {
    store: Store,
    /// The newest member, verified.
    head: Option<SequenceMember>,
    /// Older members that may still be there.
    older: BTreeSet<u64>,
    /// Members that may have been created at the number after the head.
    doubts: Vec<SequenceMember>,
    fenced: bool,
}

impl Sequence {
    /// The sequence as a listing shows it; for a writer that is about to take over.
    ///
    /// # Errors
    ///
    /// `store` if it could not be listed or read: never an empty sequence. `corrupt` and `incompatible`.
    pub(crate) async fn read(store: Store) -> Result<Self> {
        for _ in 0..LISTINGS_MAX {
            let mut older = numbers(&store).await?;
            let Some(newest) = older.pop_last() else {
                return Ok(Self { store, head: None, older, doubts: Vec::new(), fenced: false });
            };
            if let Some(head) = read_member(&store, newest).await? {
                return Ok(Self { store, head: Some(head), older, doubts: Vec::new(), fenced: false });
            }
            // It was superseded and deleted meanwhile.
        }
        Err(Error::new(
            ErrorKind::Store,
            format!("the sequence did not stand still in {LISTINGS_MAX} listings"),
        ))
    }

    /// The newest member.
    pub(crate) fn head(&self) -> Option<&SequenceMember> {
        self.head.as_ref()
    }

    /// The number that the next member takes.
    pub(crate) fn next_number(&self) -> u64 {
        self.head.as_ref().map_or(1, |head| head.number.saturating_add(1))
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Appends `member`, whose number is [`Sequence::next_number`]. Afterwards it is the head, and members that were in
    /// doubt at its number are known not to have happened.
    ///
    /// Dropping the future leaves the member in doubt.
    pub(crate) async fn append(&mut self, member: SequenceMember) -> Result<(), AppendError> {
        if self.fenced {
            return Err(AppendError::Fenced { error: self.fenced_error(), answered: true });
        }
        let bytes = member.encode(Compression::default());
        let bytes = Bytes::from(bytes.map_err(|error| AppendError::NotApplied(error.into()))?);
        let name = member.object();
        let earlier = self.doubts.len();
        self.doubts.push(member.clone());
        let mut answered = true;
        let mut failure = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.store.create(&name, bytes.clone()).await {
                Ok(CreateOutcome::Created) => return self.verify(member, answered).await,
                Ok(CreateOutcome::Exists) => {}
                Err(error) => {
                    let unknown = error.outcome == Outcome::Unknown;
                    tracing::warn!(object = %name, error = %error, unknown, "publish failed");
                    if is_broken(Break::LostReplyIsFailure) {
                        self.doubts.truncate(earlier);
                        return Err(AppendError::NotApplied(error.into()));
                    }
                    failure = Some(error);
                    if !unknown {
                        continue;
                    }
                    answered = false;
                }
            }
            // Our own earlier attempt may have been applied although it reported a failure: only the token tells who
            // has the number. Absent after "exists" happens too, where a store reports a conflict with a create that
            // failed in the end.
            match read_member(&self.store, member.number).await {
                Ok(Some(there)) => return self.taken(there, member, answered).await,
                Ok(None) => {}
                Err(error) => return Err(AppendError::Unreadable(error)),
            }
        }
        let error = failure.map_or_else(
            || Error::new(ErrorKind::Store, format!("{name} is reported to exist and is not there")),
            Error::from,
        );
        if answered {
            self.doubts.truncate(earlier);
            return Err(AppendError::NotApplied(error));
        }
        Err(AppendError::Doubtful(error))
    }

    /// Somebody has the number of `member`.
    async fn taken(
        &mut self,
        there: SequenceMember,
        member: SequenceMember,
        answered: bool,
    ) -> Result<(), AppendError> {
        if there.token == member.token {
            return self.verify(member, answered).await;
        }
        if self.doubts.iter().any(|doubt| doubt.token == there.token) {
            self.verify(there.clone(), false).await?;
            return Err(AppendError::Settled(Box::new(there)));
        }
        if self.is_boundary(&there) || is_broken(Break::FenceIgnored) {
            self.verify(there, answered).await?;
            return Err(AppendError::Moved);
        }
        self.fence(&there);
        Err(AppendError::Fenced { error: self.fenced_error(), answered })
    }

    /// Whether `there` is a sweep boundary that another process has appended for our generation.
    fn is_boundary(&self, there: &SequenceMember) -> bool {
        let ours = self.head.as_ref().map(|head| head.generation);
        matches!(there.step, SequenceStep::SweepBoundary { .. }) && Some(there.generation) == ours
    }

    fn fence(&mut self, by: &SequenceMember) {
        tracing::warn!(number = by.number, generation = %by.generation, "another coordinator has taken over");
        self.fenced = true;
    }

    pub(crate) fn fenced_error(&self) -> Error {
        Error::new(
            ErrorKind::Fenced,
            "another coordinator has taken over this directory; this one has stopped",
        )
    }

    /// Rule S2: `member` was found or created at its number; it counts only if its predecessor is still the one we know.
    async fn verify(&mut self, member: SequenceMember, answered: bool) -> Result<(), AppendError> {
        let mut failure = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.is_first(&member).await {
                Ok(true) => {
                    self.doubts.clear();
                    self.older.extend(self.head.take().map(|head| head.number));
                    self.head = Some(member);
                    return Ok(());
                }
                Ok(false) => {
                    self.fenced = true;
                    // A stray lies below the newest member and misleads nobody; deleting it is only tidy.
                    let _ = self.store.delete(&[member.object()]).await;
                    return Err(AppendError::Fenced { error: self.fenced_error(), answered });
                }
                Err(error) => failure = Some(error),
            }
        }
        let error = failure.unwrap_or_else(|| self.fenced_error());
        Err(AppendError::Unreadable(error))
    }

    async fn is_first(&self, member: &SequenceMember) -> Result<bool> {
        match &self.head {
            Some(head) => {
                let before = read_member(&self.store, head.number).await?;
                Ok(before.is_some_and(|before| before.token == head.token))
            }
            None => Ok(numbers(&self.store).await?.last() == Some(&member.number)),
        }
    }

    /// Finds out what became of the members in doubt.
    ///
    /// # Errors
    ///
    /// What kept it from finding out; they stay in doubt. `fenced`.
    pub(crate) async fn settle(&mut self) -> Result<Settlement> {
        let Some(number) = self.doubts.first().map(|doubt| doubt.number) else {
            return Ok(Settlement::Nothing);
        };
        let Some(there) = read_member(&self.store, number).await? else { return Ok(Settlement::Absent) };
        let ours = self.doubts.iter().any(|doubt| doubt.token == there.token);
        if !ours && !self.is_boundary(&there) {
            self.fence(&there);
            return Err(self.fenced_error());
        }
        match self.verify(there.clone(), false).await {
            Ok(()) if ours => Ok(Settlement::Applied(Box::new(there))),
            Ok(()) => Ok(Settlement::Refused),
            Err(AppendError::Fenced { error, .. } | AppendError::Unreadable(error)) => Err(error),
            Err(_) => Err(self.fenced_error()),
        }
    }

    /// Lists once more: whether no member above the head exists. For a writer that has just taken over.
    ///
    /// # Errors
    ///
    /// `store`.
    pub(crate) async fn is_newest(&self) -> Result<bool> {
        let newest = numbers(&self.store).await?.pop_last();
        Ok(newest == self.head.as_ref().map(|head| head.number))
    }

    /// Lists once more, to find strays below the head; [`Sequence::take_superseded`] hands them on.
    ///
    /// # Errors
    ///
    /// `store`.
    pub(crate) async fn find_strays(&mut self) -> Result<()> {
        let Some(head) = self.head.as_ref().map(|head| head.number) else { return Ok(()) };
        self.older.extend(numbers(&self.store).await?.range(..head));
        Ok(())
    }

    /// Hands on the members that are superseded, for somebody who deletes them by rule S1.
    pub(crate) fn take_superseded(&mut self) -> BTreeSet<u64> {
        self.take_older(1)
    }

    /// As [`Sequence::take_superseded`], for a writer that has appended beside a coordinator, right after a member of
    /// its. That one may know the member before the head, or, if its last append is in doubt, the one before that; it
    /// must find it.
    pub(crate) fn take_superseded_beside(&mut self) -> BTreeSet<u64> {
        self.take_older(2)
    }

    /// Takes the numbers that lie more than `kept_below_head` below the head.
    fn take_older(&mut self, kept_below_head: u64) -> BTreeSet<u64> {
        let head = self.head.as_ref().map_or(0, |head| head.number);
        let stay = self.older.split_off(&head.saturating_sub(kept_below_head));
        std::mem::replace(&mut self.older, stay)
    }
}

/// The numbers of the members that a listing shows.
async fn numbers(store: &Store) -> Result<BTreeSet<u64>> {
    let objects = store.list(ObjectClass::Sequence).await?;
    let number = |path: &str| match ObjectPath::parse(path) {
        Some(ObjectPath::Sequence { number }) => Some(number),
        _ => None,
    };
    Ok(objects.iter().filter_map(|object| number(&object.path)).collect())
}

/// The newest member that is not damaged; for readers that take over nothing and check every file they find listed.
///
/// # Errors
///
/// `store` if the sequence could not be listed or read; the damage, if there is no sound member.
pub(crate) async fn newest_sound_member(store: &Store) -> Result<Option<SequenceMember>> {
    let mut damage = None;
    for number in numbers(store).await?.into_iter().rev() {
        match read_member(store, number).await {
            Ok(None) => {}
            Ok(Some(member)) => return Ok(Some(member)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(number, error = %error, "looking past a damaged member of the sequence");
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    damage.map_or(Ok(None), Err)
}

/// The member with this number; `None` if it is not there.
pub(crate) async fn read_member(store: &Store, number: u64) -> Result<Option<SequenceMember>> {
    let name = ObjectPath::Sequence { number }.name();
    let bytes = match store.get(&name, DecodeLimits::default()).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let member = SequenceMember::decode(&bytes, number, DecodeLimits::default());
    Ok(Some(member.map_err(|error| error.in_object(name.as_str()))?))
}

#[cfg(test)]
mod tests;
