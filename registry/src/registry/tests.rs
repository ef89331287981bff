//! The registry against a naive model that scans all listings.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

/// File `number`: two neighbours share an object.
fn file(number: u64) -> FileId {
    FileId {
        object: ObjectName::new(&format!("data/o{}.seg", number / 2)).unwrap(),
        offset: number % 2 * 100,
    }
}

fn files(numbers: &[u64]) -> Vec<FileId> {
    numbers.iter().copied().map(file).collect()
}

fn owned(numbers: &[u64]) -> Vec<(FileId, Owner)> {
    files(numbers).into_iter().map(|file| (file, Owner::Coordinator)).collect()
}

fn names(released: &Released) -> Vec<&str> {
    released.objects.iter().map(|free| free.object.as_str()).collect()
}

#[test]
fn a_file_lives_until_its_last_lister_lets_go_and_is_returned_once() {
    let mut registry = Registry::new();
    registry.register(Holder::Checkpoint(id(1)), None, owned(&[0, 2]), &[]).unwrap();
    let base = Some(Holder::Checkpoint(id(1)));
    registry.register(Holder::Checkpoint(id(2)), base, owned(&[4]), &files(&[0])).unwrap();
    assert_eq!(registry.holders(&file(2)).len(), 2);
    assert_eq!(names(&registry.release(Holder::Checkpoint(id(1)))), ["data/o0.seg"]);
    assert_eq!(registry.release(Holder::Checkpoint(id(1))), Released::default(), "released already");
    assert_eq!(names(&registry.release(Holder::Checkpoint(id(2)))), ["data/o1.seg", "data/o2.seg"]);
    assert_eq!(registry.file_count(), 0);
}

#[test]
fn an_object_outlives_one_of_its_parts() {
    let mut registry = Registry::new();
    registry.register(Holder::Checkpoint(id(1)), None, owned(&[0, 1]), &[]).unwrap();
    let base = Some(Holder::Checkpoint(id(1)));
    registry.register(Holder::Checkpoint(id(2)), base, owned(&[]), &files(&[0])).unwrap();
    let released = registry.release(Holder::Checkpoint(id(1)));
    assert_eq!((released.files.as_slice(), names(&released).len()), (files(&[0]).as_slice(), 0));
    assert_eq!(names(&registry.release(Holder::Checkpoint(id(2)))), ["data/o0.seg"]);
}

#[test]
fn registering_twice_changes_nothing_and_other_files_are_refused() {
    let mut registry = Registry::new();
    let holder = Holder::Checkpoint(id(1));
    registry.register(holder, None, owned(&[0]), &[]).unwrap();
    registry.register(holder, None, owned(&[0]), &[]).unwrap();
    let error = registry.register(holder, None, owned(&[0, 7]), &[]).unwrap_err();
    assert_eq!(error, RegistryError::Different { holder, known: 1, given: 2 });
    assert_eq!(registry.file_count(), 1, "a refused registration teaches no file");
}

#[test]
fn a_file_that_the_base_does_not_list_cannot_be_dropped_from_it() {
    let mut registry = Registry::new();
    let base = Holder::Checkpoint(id(1));
    registry.register(base, None, owned(&[0]), &[]).unwrap();
    let error =
        registry.register(Holder::Checkpoint(id(2)), Some(base), owned(&[]), &files(&[9])).unwrap_err();
    assert_eq!(error, RegistryError::NotListed { file: file(9), base });
    let unknown = Holder::Checkpoint(id(5));
    let error = registry.register(Holder::Checkpoint(id(6)), Some(unknown), owned(&[]), &[]).unwrap_err();
    assert_eq!(error, RegistryError::UnknownHolder { holder: unknown });
}

#[test]
fn a_pin_keeps_what_was_listed_when_it_was_set() {
    let mut registry = Registry::new();
    registry.register(Holder::Chain(0), None, owned(&[0]), &[]).unwrap();
    let pin = registry.pin(Holder::Chain(0)).unwrap();
    registry.extend(Holder::Chain(0), owned(&[2])).unwrap();
    assert_eq!(names(&registry.release(Holder::Chain(0))), ["data/o1.seg"], "set after the pin");
    assert_eq!(names(&registry.release(Holder::Pin(pin))), ["data/o0.seg"]);
}

#[test]
fn a_replaced_listing_sets_free_what_it_no_longer_lists() {
    let mut registry = Registry::new();
    let chain = Holder::Chain(0);
    assert_eq!(registry.replace(chain, owned(&[0, 2])).unwrap(), Released::default());
    let pin = registry.pin(chain).unwrap();
    assert_eq!(registry.replace(chain, owned(&[2, 4])).unwrap(), Released::default(), "pinned");
    assert_eq!(names(&registry.replace(chain, owned(&[4])).unwrap()), Vec::<&str>::new());
    assert_eq!(registry.difference(Holder::Pin(pin), chain), files(&[0, 2]));
    assert_eq!(names(&registry.release(Holder::Pin(pin))), ["data/o0.seg", "data/o1.seg"]);
}

#[test]
fn objects_of_an_unclaimed_checkpoint_are_never_returned() {
    let mut registry = Registry::new();
    registry.register(Holder::Checkpoint(id(1)), None, [(file(0), Owner::Foreign)], &[]).unwrap();
    let base = Some(Holder::Checkpoint(id(1)));
    registry.register(Holder::Checkpoint(id(2)), base, owned(&[0, 2]), &[]).unwrap();
    assert!(names(&registry.release(Holder::Checkpoint(id(1)))).is_empty(), "R4: it is foreign");
    let released = registry.release(Holder::Checkpoint(id(2)));
    assert_eq!(names(&released), ["data/o1.seg"], "R4: what was written since is not");
}

#[test]
fn an_object_of_two_subtasks_is_the_coordinators() {
    let mut registry = Registry::new();
    registry
        .extend(Holder::Chain(0), [(file(0), Owner::Participant(0)), (file(2), Owner::Participant(0))])
        .unwrap();
    registry.extend(Holder::Chain(1), [(file(0), Owner::Participant(1))]).unwrap();
    assert_eq!(registry.owner(&file(0).object), Some(Owner::Coordinator));
    assert_eq!(registry.owner(&file(2).object), Some(Owner::Participant(0)));
    registry.disown_participants();
    assert_eq!(registry.owner(&file(2).object), Some(Owner::Coordinator));
}

/// What one step of a history does. Numbers are taken modulo what exists.
#[derive(Clone, Debug)]
enum Step {
    Register { base: Option<u8>, added: Vec<u8>, removed: Vec<u8> },
    Extend { holder: u8, added: Vec<u8> },
    Pin { holder: u8 },
    Release { holder: u8 },
    Rebuild,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let numbers = || proptest::collection::vec(any::<u8>(), 0..6);
    let step = prop_oneof![
        4 => (any::<Option<u8>>(), numbers(), numbers())
            .prop_map(|(base, added, removed)| Step::Register { base, added, removed }),
        1 => (any::<u8>(), numbers()).prop_map(|(holder, added)| Step::Extend { holder, added }),
        2 => any::<u8>().prop_map(|holder| Step::Pin { holder }),
        4 => any::<u8>().prop_map(|holder| Step::Release { holder }),
        1 => Just(Step::Rebuild),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Every listing, whole.
#[derive(Default)]
struct Model {
    listings: BTreeMap<Holder, BTreeSet<u64>>,
    checkpoints: u64,
}

impl Model {
    fn pick(&self, number: u8) -> Option<Holder> {
        let count = self.listings.len();
        (count > 0).then(|| *self.listings.keys().nth(usize::from(number) % count).unwrap())
    }

    fn listed(&self, number: u64) -> bool {
        self.listings.values().any(|files| files.contains(&number))
    }

    /// Files, and objects, that only `holder` lists.
    fn release(&mut self, holder: Holder) -> (Vec<FileId>, BTreeSet<ObjectName>) {
        let gone = self.listings.remove(&holder).unwrap();
        let free: Vec<u64> = gone.into_iter().filter(|number| !self.listed(*number)).collect();
        let whole = |number: &u64| !self.listed(number / 2 * 2) && !self.listed(number / 2 * 2 + 1);
        let objects = free.iter().filter(|number| whole(number)).map(|number| file(*number).object).collect();
        let mut files: Vec<FileId> = free.into_iter().map(file).collect();
        files.sort();
        (files, objects)
    }
}

fn register(registry: &mut Registry, model: &mut Model, base: Option<u8>, added: &[u8], removed: &[u8]) {
    model.checkpoints += 1;
    let holder = Holder::Checkpoint(id(model.checkpoints));
    let base = base.and_then(|number| model.pick(number));
    let mut set = base.map(|base| model.listings[&base].clone()).unwrap_or_default();
    let removed: BTreeSet<u64> =
        removed.iter().filter_map(|n| set.iter().nth(usize::from(*n) % set.len().max(1)).copied()).collect();
    set.retain(|number| !removed.contains(number));
    let added: Vec<u64> = added.iter().map(|number| u64::from(*number % 64)).collect();
    set.extend(&added);
    let removed: Vec<FileId> = removed.into_iter().map(file).collect();
    registry.register(holder, base, owned(&added), &removed).unwrap();
    model.listings.insert(holder, set);
}

fn apply(registry: &mut Registry, model: &mut Model, step: Step) {
    match step {
        Step::Register { base, added, removed } => register(registry, model, base, &added, &removed),
        Step::Extend { holder, added } => {
            let Some(holder) = model.pick(holder) else { return };
            let added: Vec<u64> = added.into_iter().map(|number| u64::from(number % 64)).collect();
            registry.extend(holder, owned(&added)).unwrap();
            model.listings.get_mut(&holder).unwrap().extend(added);
        }
        Step::Pin { holder } => {
            let Some(holder) = model.pick(holder) else { return };
            let pin = registry.pin(holder).unwrap();
            model.listings.insert(Holder::Pin(pin), model.listings[&holder].clone());
        }
        Step::Release { holder } => {
            let Some(holder) = model.pick(holder) else { return };
            let released = registry.release(holder);
            let (files, objects) = model.release(holder);
            assert_eq!(released.files, files);
            let returned: Vec<ObjectName> = released.objects.into_iter().map(|free| free.object).collect();
            assert_eq!(returned, objects.into_iter().collect::<Vec<_>>(), "each object once, in name order");
        }
        Step::Rebuild => {
            let listings = model.listings.iter().map(|(holder, set)| Listing {
                holder: *holder,
                files: set.iter().copied().map(file).collect(),
                owner: Owner::Coordinator,
            });
            let pins_given = registry.pins_given;
            *registry = Registry::rebuild(listings).unwrap();
            registry.pins_given = pins_given;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn a_release_returns_exactly_what_no_other_listing_holds(steps in steps()) {
        let (mut registry, mut model) = (Registry::new(), Model::default());
        for step in steps {
            apply(&mut registry, &mut model, step);
            registry.check_invariants();
            for number in 0..64 {
                let naive: Vec<Holder> = model.listings.iter()
                    .filter(|(_, set)| set.contains(&number)).map(|(holder, _)| *holder).collect();
                prop_assert_eq!(registry.holders(&file(number)), naive);
            }
        }
    }
}
