//! What is read while a restore goes on, and how readers end. The chain is that of two backends, so that its elements
//! list different key groups.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use lowtide_format::{
    AutoCodec, CheckpointId, Codec, CodecIdentity, DecodeLimits, FormatError, Key, KeyGroup, KeyGroupCount,
    KeyGroupRange, KeyGroupSet, ObjectName, key_group,
};
use parking_lot::Mutex;

use super::{RestoreReader, RestoringState};
use crate::restore::{HeapRestore, RestoredFile};
use crate::{
    BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapError, HeapErrorKind, HeapOptions, WriteOptions,
};

const GROUPS: u16 = 8;
const KEYS: u64 = 120;

/// Keys and values of the state of numbers, and of that of texts with a namespace.
type Numbers = BTreeMap<u64, u64>;
type Texts = BTreeMap<(String, u32), String>;

/// A checkpoint of two backends, whose elements come newest first.
#[derive(Default)]
struct Source {
    elements: Vec<(RestoredFile, Bytes)>,
    numbers: Numbers,
    texts: Texts,
}

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

fn count() -> KeyGroupCount {
    KeyGroupCount::new(GROUPS).unwrap()
}

fn group_of<K: Key>(key: &K) -> KeyGroup {
    key_group(key.key_hash(), count())
}

fn options(range: KeyGroupRange) -> HeapOptions {
    HeapOptions { key_groups: count(), range, base_mode: BaseMode::Confirmed }
}

/// One of the two halves of the key groups, cut at 4.
fn half(number: u32) -> KeyGroupRange {
    KeyGroupRange::of_subtask(number, 2, count()).unwrap()
}

fn text(key: u64) -> String {
    format!("key-{key}")
}

impl Source {
    /// Puts, removals and clears in three checkpoints.
    fn new() -> Self {
        let mut source = Self::default();
        for number in 0..2 {
            source.write(half(number));
        }
        source.elements.sort_by_key(|(file, _)| std::cmp::Reverse(checkpoint_of(file)));
        source
    }

    fn write(&mut self, range: KeyGroupRange) {
        let mut backend = HeapBackend::new(options(range));
        let numbers = backend.value_state::<u64, (), u64>("numbers").unwrap();
        let texts = backend.value_state::<String, u32, String>("texts").unwrap();
        let (mut base, mut chain) = (None, Vec::new());
        for round in 1..=3 {
            if round == 2 {
                backend.state_mut(texts).unwrap().clear_namespace(&7);
                self.texts.retain(|(key, namespace), _| *namespace != 7 || !range.contains(group_of(key)));
            }
            for key in (0..KEYS).filter(|key| round == 1 || key % 5 == round) {
                if range.contains(group_of(&key)) {
                    let mut state = backend.state_mut(numbers).unwrap();
                    if key % 2 == 0 && round > 1 {
                        state.remove(&key);
                        self.numbers.remove(&key);
                    } else {
                        state.put(key, key * 10 + round).unwrap();
                        self.numbers.insert(key, key * 10 + round);
                    }
                }
                if range.contains(group_of(&text(key))) {
                    let (namespace, value) = (if key % 3 == 0 { 7 } else { 8 }, format!("{key} of {round}"));
                    backend.state_mut(texts).unwrap().put_in(namespace, text(key), value.clone()).unwrap();
                    self.texts.insert((text(key), namespace), value);
                }
            }
            chain = self.checkpoint(&mut backend, id(round), base);
            base = Some(id(round));
        }
        self.elements.extend(chain);
    }

    fn checkpoint(
        &self,
        backend: &mut HeapBackend,
        id: CheckpointId,
        base: Option<CheckpointId>,
    ) -> Vec<(RestoredFile, Bytes)> {
        self.checkpoint_as(backend, (id, base), &WriteOptions::default())
    }

    fn checkpoint_as(
        &self,
        backend: &mut HeapBackend,
        (id, base): (CheckpointId, Option<CheckpointId>),
        write: &WriteOptions,
    ) -> Vec<(RestoredFile, Bytes)> {
        static OBJECTS: Mutex<BTreeMap<ObjectName, Bytes>> = Mutex::new(BTreeMap::new());
        let mut snapshot = backend.freeze(FreezeRequest { id, base, kind: FreezeKind::Checkpoint }).unwrap();
        let mut files = Vec::new();
        let mut sink = |segment: lowtide_format::FinishedSegment| {
            let mut objects = OBJECTS.lock();
            let object = ObjectName::new(&format!("object-{}", objects.len())).unwrap();
            files.push(segment.summary.file_entry(object.clone()));
            objects.insert(object, segment.bytes);
            Ok(())
        };
        snapshot.write(write, &mut sink).unwrap();
        let chain = snapshot.finish(files).unwrap().chain;
        backend.completed(id);
        let objects = OBJECTS.lock();
        let element = |element: &crate::chain::Element| {
            let file = element.facts.file.clone().unwrap();
            let bytes = objects[&file.entry.object].clone();
            (RestoredFile { file, key_groups: element.key_groups.clone() }, bytes)
        };
        chain.elements().iter().map(element).collect()
    }

    fn restore(&self) -> (HeapRestore, RestoreReader) {
        let mut restore = HeapRestore::new(options(count().all()), id(3), DecodeLimits::default());
        let reader = restore.reader(self.elements.iter().map(|(file, _)| &file.key_groups)).unwrap();
        (restore, reader)
    }

    /// Hands in the elements from number `from` to before `to`.
    fn feed(&self, restore: &mut HeapRestore, elements: std::ops::Range<usize>) {
        for (file, bytes) in &self.elements[elements] {
            restore.segment(file.clone(), bytes).unwrap();
        }
    }

    /// The key groups that no element from number `from` on lists.
    fn complete(&self, from: usize) -> KeyGroupSet {
        let to_come = self.elements[from..].iter().map(|(file, _)| &file.key_groups);
        to_come.fold(KeyGroupSet::from(count().all()), |left, listed| left.difference(listed))
    }

    /// Reads every key; `complete` are the key groups that have to answer, and no others.
    fn check(&self, reader: &RestoreReader, complete: &KeyGroupSet) {
        let (numbers, texts) = states(reader);
        for key in 0..KEYS + 10 {
            let group = group_of(&key);
            assert_eq!(reader.is_ready(group), complete.contains(group), "{group}");
            expect(numbers.get(&key), self.numbers.get(&key), complete.contains(group), group);
            for namespace in [7, 8] {
                let group = group_of(&text(key));
                let expected = self.texts.get(&(text(key), namespace));
                let ready = complete.contains(group);
                expect(texts.get_in(&namespace, text(key).as_str()), expected, ready, group);
            }
        }
    }
}

fn checkpoint_of(file: &RestoredFile) -> CheckpointId {
    file.file.summary.unwrap().checkpoint
}

fn expect<V: Clone + PartialEq + std::fmt::Debug>(
    found: Result<Option<V>, HeapError>,
    expected: Option<&V>,
    ready: bool,
    group: KeyGroup,
) {
    match found {
        Ok(found) => assert_eq!((found.as_ref(), ready), (expected, true), "{group}"),
        Err(HeapError::NotReady { key_group, checkpoint }) => {
            assert_eq!(
                (key_group, checkpoint, ready),
                (group, id(3), false),
                "H19: what is complete is ready"
            );
        }
        Err(error) => panic!("{error}"),
    }
}

fn states(reader: &RestoreReader) -> (RestoringState<u64, (), u64>, RestoringState<String, u32, String>) {
    (reader.value_state("numbers"), reader.value_state("texts"))
}

/// Counts how often it is woken, and wakes the thread that made it.
struct Bell {
    rings: AtomicUsize,
    thread: std::thread::Thread,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Self { rings: AtomicUsize::new(0), thread: std::thread::current() })
    }

    fn rings(&self) -> usize {
        self.rings.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Bell::new());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_key_group_is_read_as_soon_as_no_element_to_come_lists_it() {
    let source = Source::new();
    for typed in [true, false] {
        let (mut restore, reader) = source.restore();
        if typed {
            restore.value_state::<u64, (), u64>("numbers").unwrap();
            restore.value_state::<String, u32, String>("texts").unwrap();
        }
        let mut steps = Vec::new();
        for next in 0..source.elements.len() {
            source.check(&reader, &source.complete(next));
            steps.push(source.complete(next).len());
            source.feed(&mut restore, next..next + 1);
        }
        source.check(&reader, &KeyGroupSet::from(count().all()));
        assert_eq!(steps, [0, 0, 0, 0, 0, 4], "elements of one half of the key groups come last");
        let mut backend = restore.finish();
        backend.check_invariants();
        let numbers = backend.value_state::<u64, (), u64>("numbers").unwrap();
        let texts = backend.value_state::<String, u32, String>("texts").unwrap();
        let of_backend: Numbers =
            backend.state(numbers).unwrap().iter().map(|entry| (*entry.key, *entry.value)).collect();
        assert_eq!(of_backend, source.numbers, "what was read is what the backend holds");
        let entries = backend.state(texts).unwrap();
        let of_backend: Texts = entries
            .iter()
            .map(|entry| ((entry.key.clone(), *entry.namespace), entry.value.clone()))
            .collect();
        assert_eq!(of_backend, source.texts, "what was read is what the backend holds");
    }
}

#[test]
fn a_key_group_that_no_element_lists_is_ready_at_once() {
    let source = Source::new();
    let mut restore = HeapRestore::new(options(count().all()), id(3), DecodeLimits::default());
    let upper = KeyGroupSet::from(half(1));
    let reader = restore.reader([&upper]).unwrap();
    let (numbers, _) = states(&reader);
    for key in 0..KEYS {
        expect(numbers.get(&key), None, half(0).contains(group_of(&key)), group_of(&key));
    }
    let oldest = source.elements.iter().rev().find(|(file, _)| file.key_groups == upper).unwrap();
    restore.segment(oldest.0.clone(), &oldest.1).unwrap();
    assert!(count().all().iter().all(|group| reader.is_ready(group)));
}

/// Says, whenever it decodes a value, whether the first key group is ready.
#[derive(Clone, Default)]
struct Watching {
    reader: Arc<Mutex<Option<RestoreReader>>>,
    seen: Arc<Mutex<Vec<bool>>>,
}

impl Codec<u64> for Watching {
    fn encode(&self, value: &u64, out: &mut Vec<u8>) -> Result<(), FormatError> {
        AutoCodec.encode(value, out)
    }

    fn decode(&self, bytes: &[u8], limits: DecodeLimits) -> Result<u64, FormatError> {
        if let Some(reader) = &*self.reader.lock() {
            self.seen.lock().push(reader.is_ready(KeyGroup(0)));
        }
        AutoCodec.decode(bytes, limits)
    }

    fn identity(&self) -> CodecIdentity {
        Codec::<u64>::identity(&AutoCodec)
    }
}

#[test]
fn a_key_group_is_ready_while_the_call_that_completes_it_fills_others() {
    let mut writer = HeapBackend::new(options(count().all()));
    let state = writer.value_state::<u64, (), u64>("numbers").unwrap();
    // Few: so that one thread takes them, one key group after the other.
    let keys = [0, 5].map(|group| (0..).find(|key: &u64| group_of(key) == KeyGroup(group)).unwrap());
    keys.into_iter().for_each(|key| assert!(writer.state_mut(state).unwrap().put(key, key).unwrap()));
    let chain = Source::default().checkpoint(&mut writer, id(1), None);
    let mut restore = HeapRestore::new(options(count().all()), id(1), DecodeLimits::default());
    let codec = Watching::default();
    restore.value_state_with::<u64, (), u64>("numbers", Arc::new(codec.clone())).unwrap();
    let reader = restore.reader(chain.iter().map(|(file, _)| &file.key_groups)).unwrap();
    *codec.reader.lock() = Some(reader);
    for (file, bytes) in &chain {
        restore.segment(file.clone(), bytes).unwrap();
    }
    assert_eq!(*codec.seen.lock(), [false, true]);
}

#[test]
fn a_wait_ends_when_its_key_group_is_ready_and_leaves_nothing_behind() {
    let source = Source::new();
    let (mut restore, reader) = source.restore();
    let last = source.elements.last().unwrap().0.key_groups.iter().next().unwrap();
    let first = (0..GROUPS).map(KeyGroup).find(|group| source.complete(5).contains(*group)).unwrap();
    let bells = [Bell::new(), Bell::new()];
    let wakers = bells.clone().map(Waker::from);
    let mut waits = [Box::pin(reader.ready(first)), Box::pin(reader.ready(last))];
    let mut poll = |at: usize| waits[at].as_mut().poll(&mut Context::from_waker(&wakers[at]));
    for at in [0, 1, 0, 1] {
        assert!(poll(at).is_pending());
    }
    assert_eq!(reader.served.waits(), 2, "asking again is the same wait");
    source.feed(&mut restore, 0..5);
    assert_eq!((bells[0].rings(), bells[1].rings()), (1, 0));
    assert!(matches!((poll(0), poll(1)), (Poll::Ready(Ok(())), Poll::Pending)));
    drop(waits);
    assert_eq!(reader.served.waits(), 0, "a wait that is dropped is forgotten");
    let key = (0..).find(|key: &u64| group_of(key) == last).unwrap();
    let numbers = reader.value_state::<u64, (), u64>("numbers");
    let found = std::thread::scope(|scope| {
        let found = scope.spawn(|| block_on(numbers.get_when_ready(&key)));
        source.feed(&mut restore, 5..6);
        found.join().unwrap()
    });
    assert_eq!(found.unwrap().as_ref(), source.numbers.get(&key));
}

#[test]
fn the_end_of_a_restore_ends_readers_and_waits_and_frees_the_entries() {
    type EndOf = fn(HeapRestore, &Source) -> (Option<HeapRestore>, Option<HeapBackend>);
    let damaged: EndOf = |mut restore, source| {
        let (file, bytes) = &source.elements[5];
        let mut bytes = bytes.to_vec();
        bytes[20] ^= 1;
        assert_eq!(restore.segment(file.clone(), &bytes).unwrap_err().kind(), HeapErrorKind::Corrupt);
        // The error alone ends them.
        (Some(restore), None)
    };
    let dropped: EndOf = |_, _| (None, None);
    let finished: EndOf = |mut restore, source| {
        source.feed(&mut restore, 5..6);
        (None, Some(restore.finish()))
    };
    let ends = [
        (finished, HeapErrorKind::Restored),
        (dropped, HeapErrorKind::Abandoned),
        (damaged, HeapErrorKind::Abandoned),
    ];
    let source = Source::new();
    for (end, kind) in ends {
        let (mut restore, reader) = source.restore();
        source.feed(&mut restore, 0..5);
        let last = source.elements.last().unwrap().0.key_groups.iter().next().unwrap();
        let bell = Bell::new();
        let waker = Waker::from(Arc::clone(&bell));
        let mut wait = Box::pin(reader.ready(last));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let (_restore, backend) = end(restore, &source);
        assert_eq!(bell.rings(), 1, "{kind:?}");
        let finished = kind == HeapErrorKind::Restored;
        let Poll::Ready(Err(error)) = wait.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("the wait goes on");
        };
        assert_eq!((error.kind(), backend.is_some()), (kind, finished), "{error}");
        assert!(error.to_string().contains("chk-3"), "{error}");
    }
    let (mut restore, reader) = source.restore();
    source.feed(&mut restore, 0..5);
    drop(restore);
    let (numbers, _) = states(&reader);
    for key in 0..KEYS {
        assert_eq!(numbers.get(&key).unwrap_err().kind(), HeapErrorKind::Abandoned);
    }
    assert_eq!(reader.served.each(|shard| shard.entries()).sum::<usize>(), 0, "entries are kept for nobody");
    assert!(!count().all().iter().any(|group| reader.is_ready(group)));
}

#[test]
fn threads_read_the_same_while_elements_are_taken() {
    let source = Source::new();
    let everything = KeyGroupSet::from(count().all());
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        let (mut restore, reader) = source.restore();
        let read = std::thread::scope(|scope| {
            let reading = |first: u64| {
                let (numbers, texts) = states(&reader);
                let source = &source;
                move || {
                    let mut read = 0;
                    for key in (0..KEYS).map(|key| (key + first) % KEYS) {
                        match numbers.get(&key) {
                            Ok(value) => assert_eq!(value.as_ref(), source.numbers.get(&key)),
                            Err(error) => assert_eq!(error.kind(), HeapErrorKind::NotReady),
                        }
                        let waited = block_on(texts.get_when_ready_in(&8, text(key).as_str()));
                        assert_eq!(waited.unwrap().as_ref(), source.texts.get(&(text(key), 8)));
                        read += 1;
                    }
                    read
                }
            };
            let threads: Vec<_> = (0..3).map(|number| scope.spawn(reading(number * 40))).collect();
            source.feed(&mut restore, 0..source.elements.len());
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        assert_eq!(read, 3 * KEYS);
        source.check(&reader, &everything);
        assert_eq!(restore.finish().figures().entries as usize, source.numbers.len() + source.texts.len());
    }
}

#[test]
fn the_segments_of_a_cut_checkpoint_are_listed_for_what_they_reach_and_are_ready_one_by_one() {
    let mut writer = HeapBackend::new(options(count().all()));
    let state = writer.value_state::<u64, (), u64>("numbers").unwrap();
    (0..KEYS).for_each(|key| assert!(writer.state_mut(state).unwrap().put(key, key).unwrap()));
    let write = WriteOptions { segment_bytes_max: 1, ..WriteOptions::default() };
    let mut chain = Source::default().checkpoint_as(&mut writer, (id(1), None), &write);
    chain.reverse();
    let listed: Vec<u32> = chain.iter().map(|(file, _)| file.key_groups.len()).collect();
    assert_eq!(listed, [1; GROUPS as usize], "each key group is a part of its own");
    let mut restore = HeapRestore::new(options(count().all()), id(1), DecodeLimits::default());
    let reader = restore.reader(chain.iter().map(|(file, _)| &file.key_groups)).unwrap();
    for (ready, (file, bytes)) in chain.iter().enumerate() {
        assert_eq!(count().all().iter().filter(|group| reader.is_ready(*group)).count(), ready);
        restore.segment(file.clone(), bytes).unwrap();
    }
    assert_eq!(restore.finish().figures().entries, KEYS);

    // A clear is about every key group, whatever the puts beside it reach.
    let mut state = writer.state_mut(state).unwrap();
    state.clear();
    state.put(1, 1).unwrap();
    let cleared = Source::default().checkpoint(&mut writer, id(2), Some(id(1)));
    let newest = cleared.iter().find(|(file, _)| checkpoint_of(file) == id(2)).unwrap();
    assert_eq!(newest.0.key_groups, KeyGroupSet::from(count().all()));
}

#[test]
fn other_types_and_keys_of_other_subtasks_are_refused_and_an_unknown_state_is_empty() {
    let source = Source::new();
    for typed in [true, false] {
        let mut restore = HeapRestore::new(options(half(0)), id(3), DecodeLimits::default());
        if typed {
            restore.value_state::<u64, (), u64>("numbers").unwrap();
        }
        let reader = restore.reader(source.elements.iter().map(|(file, _)| &file.key_groups)).unwrap();
        assert_eq!(reader.range(), half(0));
        source.feed(&mut restore, 0..source.elements.len());
        let key = (0..).find(|key: &u64| half(0).contains(group_of(key))).unwrap();
        let wrong = reader.value_state::<u64, (), String>("numbers").get(&key).unwrap_err();
        assert_eq!(wrong.kind(), HeapErrorKind::Incompatible);
        assert!(wrong.to_string().contains("numbers"), "{wrong}");
        assert_eq!(reader.value_state::<u64, (), u64>("unknown").get(&key).unwrap(), None);
        let foreign = (0..).find(|key: &u64| !half(0).contains(group_of(key))).unwrap();
        let refused = reader.value_state::<u64, (), u64>("numbers").get(&foreign).unwrap_err();
        assert!(matches!(refused, HeapError::ForeignKey { .. }), "{refused}");
        assert!(matches!(block_on(reader.ready(group_of(&foreign))), Err(HeapError::ForeignKey { .. })));
        assert!(!reader.is_ready(group_of(&foreign)));
    }
}

#[test]
fn a_reader_is_taken_once_and_first_and_is_told_of_every_element() {
    let source = Source::new();
    let none: [KeyGroupSet; 0] = [];
    let (mut restore, _reader) = source.restore();
    assert!(matches!(restore.reader(&none), Err(HeapError::ReaderTooLate { .. })));
    let mut restore = HeapRestore::new(options(count().all()), id(3), DecodeLimits::default());
    source.feed(&mut restore, 0..1);
    assert!(matches!(restore.reader(&none), Err(HeapError::ReaderTooLate { .. })));

    let mut restore = HeapRestore::new(options(count().all()), id(3), DecodeLimits::default());
    let reader = restore.reader([&source.elements[0].0.key_groups]).unwrap();
    source.feed(&mut restore, 0..1);
    let (file, bytes) = source
        .elements
        .iter()
        .rev()
        .find(|(file, _)| !file.key_groups.intersect(&source.elements[0].0.key_groups).is_empty())
        .unwrap();
    let error = restore.segment(file.clone(), bytes).unwrap_err();
    assert!(matches!(error, HeapError::ElementUnexpected { .. }), "{error}");
    let group = source.elements[0].0.key_groups.iter().next().unwrap();
    assert!(matches!(block_on(reader.ready(group)), Err(HeapError::RestoreAbandoned { .. })));
}

#[test]
#[should_panic(expected = "H19")]
fn a_restore_without_an_element_that_a_reader_was_told_of_does_not_finish() {
    let source = Source::new();
    let (mut restore, _reader) = source.restore();
    source.feed(&mut restore, 0..5);
    drop(restore.finish());
}
