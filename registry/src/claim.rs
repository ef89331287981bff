//! Who may delete an object once nothing lists it.

/// Who may delete an object once nothing lists it.
///
/// Ownership says who acts, never when: an object is free only when no holder lists a file in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The coordinator deletes it.
    Coordinator,
    /// The participant with this subtask index deletes it: it wrote the object in its present life, and only its own
    /// chain lists it.
    Participant(u32),
    /// Not ours: found in the directory at a forced start, or restored from without a claim. Never deleted.
    Foreign,
}

impl Owner {
    /// The owner of an object that `self` and `other` both claim to own.
    ///
    /// What is foreign to one of them stays foreign. Two different participants share the object, so neither can know
    /// whether the other still needs it: it becomes the coordinator's.
    #[must_use]
    pub const fn shared_with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Foreign, _) | (_, Self::Foreign) => Self::Foreign,
            (Self::Participant(one), Self::Participant(two)) if one == two => Self::Participant(one),
            _ => Self::Coordinator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_two_participants_is_the_coordinators() {
        let (one, two) = (Owner::Participant(1), Owner::Participant(2));
        assert_eq!(one.shared_with(two), Owner::Coordinator);
        assert_eq!(one.shared_with(one), one);
        assert_eq!(one.shared_with(Owner::Coordinator), Owner::Coordinator);
    }

    #[test]
    fn a_foreign_object_never_becomes_ours_by_being_listed() {
        for owner in [Owner::Coordinator, Owner::Participant(0), Owner::Foreign] {
            assert_eq!(Owner::Foreign.shared_with(owner), Owner::Foreign);
            assert_eq!(owner.shared_with(Owner::Foreign), Owner::Foreign);
        }
    }
}
