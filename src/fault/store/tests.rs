use futures::{FutureExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutMode};

use super::super::{FaultPlan, PowerCut};
use super::*;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn store() -> FaultStore {
    FaultStore::new(Arc::new(InMemory::new()))
}

fn data(number: u32) -> Path {
    Path::from(format!("job/data/{number}"))
}

fn plan(operation: FaultOperation, mode: FaultMode, nth: u64, times: u64) -> FaultPlan {
    FaultPlan { operation, class: FaultClass::Data, mode, nth, times }
}

async fn there(store: &FaultStore, name: &Path) -> Option<Bytes> {
    let found = store.inner().get_opts(name, GetOptions::default()).await.ok()?;
    found.bytes().await.ok()
}

#[test]
fn exactly_the_calls_from_the_nth_on_fail_and_none_of_them_happened() {
    block_on(async {
        let store = store();
        store.faults().plan(plan(FaultOperation::Put, FaultMode::Before, 2, 2));
        let mut failed = Vec::new();
        for number in 1..=5 {
            if store.put(&data(number), "x".into()).await.is_err() {
                failed.push(number);
            }
        }
        assert_eq!(failed, [2, 3]);
        assert_eq!(there(&store, &data(2)).await, None);
        assert_eq!(store.faults().plans_open(), 0);
        assert_eq!(store.faults().calls(FaultOperation::Put), 5);
    });
}

#[test]
fn a_lost_reply_leaves_the_object_and_a_cut_body_leaves_half_of_it() {
    block_on(async {
        let store = store();
        store.faults().plan(plan(FaultOperation::Put, FaultMode::After, 1, 1));
        store.faults().plan(plan(FaultOperation::Put, FaultMode::Cut, 2, 1));
        assert!(store.put(&data(1), "whole".into()).await.is_err());
        assert!(store.put(&data(2), "halves".into()).await.is_err());
        assert_eq!(there(&store, &data(1)).await, Some(Bytes::from_static(b"whole")));
        assert_eq!(there(&store, &data(2)).await, Some(Bytes::from_static(b"hal")));
    });
}

#[test]
fn a_plan_for_the_publish_lets_data_pass() {
    block_on(async {
        let store = store();
        let class = FaultClass::Publish;
        store.faults().plan(FaultPlan { class, ..plan(FaultOperation::Put, FaultMode::After, 1, 1) });
        store.put(&data(1), "x".into()).await.unwrap();
        let member = Path::from("job/seq/00000000000000000001");
        let create = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        assert!(store.put_opts(&member, "m".into(), create()).await.is_err());
        let again = store.put_opts(&member, "m".into(), create()).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })), "it happened all the same");
    });
}

#[test]
fn a_cut_body_of_a_conditional_create_leaves_nothing() {
    block_on(async {
        let store = store();
        let create = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        store.faults().plan(plan(FaultOperation::Put, FaultMode::Cut, 1, 1));
        assert!(store.put_opts(&data(1), "halves".into(), create()).await.is_err());
        assert_eq!(there(&store, &data(1)).await, None);
        store.put_opts(&data(1), "whole".into(), create()).await.unwrap();
        assert_eq!(there(&store, &data(1)).await, Some(Bytes::from_static(b"whole")));
    });
}

#[test]
fn a_cut_get_hands_out_half_without_an_error_and_the_next_one_all() {
    block_on(async {
        let store = store();
        store.put(&data(1), "12345678".into()).await.unwrap();
        store.faults().plan(plan(FaultOperation::Get, FaultMode::Cut, 1, 1));
        assert_eq!(store.get(&data(1)).await.unwrap().bytes().await.unwrap(), "1234");
        assert_eq!(store.get(&data(1)).await.unwrap().bytes().await.unwrap(), "12345678");
        assert_eq!(store.head(&data(1)).await.unwrap().size, 8);
        assert_eq!(store.faults().calls(FaultOperation::Get), 2, "a head is no get");
    });
}

#[test]
fn a_delete_fails_before_or_after_it_happened() {
    block_on(async {
        let store = store();
        for number in 1..=2 {
            store.put(&data(number), "x".into()).await.unwrap();
        }
        store.faults().plan(plan(FaultOperation::Delete, FaultMode::Before, 1, 1));
        store.faults().plan(plan(FaultOperation::Delete, FaultMode::After, 2, 1));
        assert!(store.delete(&data(1)).await.is_err());
        assert!(store.delete(&data(2)).await.is_err());
        assert!(there(&store, &data(1)).await.is_some());
        assert!(there(&store, &data(2)).await.is_none());
    });
}

#[test]
fn a_listing_fails_whole_or_half_way_but_never_looks_complete() {
    block_on(async {
        let store = store();
        for number in 1..=4 {
            store.put(&data(number), "x".into()).await.unwrap();
        }
        store.faults().plan(plan(FaultOperation::List, FaultMode::Before, 1, 1));
        store.faults().plan(plan(FaultOperation::List, FaultMode::Cut, 2, 1));
        let whole: Vec<Result<ObjectMeta>> = store.list(None).collect().await;
        assert!(whole.len() == 1 && whole[0].is_err());
        let cut: Vec<Result<ObjectMeta>> = store.list(None).collect().await;
        assert_eq!(cut.iter().filter(|entry| entry.is_ok()).count(), 2);
        assert!(cut.last().unwrap().is_err());
        assert_eq!(store.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 4);
    });
}

#[test]
fn a_hanging_call_never_returns_and_says_so() {
    block_on(async {
        let store = store();
        store.faults().plan(plan(FaultOperation::Put, FaultMode::Hang, 1, 1));
        let name = data(1);
        let mut put = std::pin::pin!(store.put(&name, "x".into()));
        assert!(put.as_mut().now_or_never().is_none());
        store.faults().stalled_beyond(0).await;
        store.faults().resume();
        assert!(put.as_mut().now_or_never().is_none(), "only a pause ends");
        assert_eq!(there(&store, &name).await, None);
    });
}

#[test]
fn a_paused_call_happens_once_it_is_let_go() {
    block_on(async {
        let store = store();
        store.faults().plan(plan(FaultOperation::Put, FaultMode::Pause, 1, 1));
        let name = data(1);
        let mut put = std::pin::pin!(store.put(&name, "x".into()));
        assert!(put.as_mut().now_or_never().is_none());
        assert_eq!(there(&store, &name).await, None);
        store.faults().resume();
        assert!(put.as_mut().now_or_never().unwrap().is_ok());
        assert!(there(&store, &name).await.is_some());
    });
}

#[test]
fn uploads_count_as_open_until_they_are_completed_or_given_up() {
    block_on(async {
        let store = store();
        let open = || store.faults().multiparts_open();
        let mut first = store.put_multipart(&data(1)).await.unwrap();
        let mut second = store.put_multipart(&data(2)).await.unwrap();
        store.faults().plan(plan(FaultOperation::Multipart, FaultMode::Before, 1, 1));
        assert!(first.put_part("part".into()).await.is_err());
        assert_eq!(open(), 2);
        first.abort().await.unwrap();
        assert_eq!(open(), 1);
        second.put_part("part".into()).await.unwrap();
        second.complete().await.unwrap();
        assert_eq!(open(), 0);
    });
}

#[test]
fn after_a_power_cut_nothing_returns_and_only_the_write_under_way_is_in_doubt() {
    for last_write_kept in [false, true] {
        block_on(async {
            let store = store();
            store.faults().cut_power(PowerCut { writes_before: 1, last_write_kept });
            store.put(&data(1), "x".into()).await.unwrap();
            let name = data(2);
            assert!(store.put(&name, "x".into()).now_or_never().is_none());
            assert!(store.faults().is_dead());
            assert!(store.get(&name).now_or_never().is_none());
            assert!(store.head(&name).now_or_never().is_none());
            assert_eq!(there(&store, &name).await.is_some(), last_write_kept);
            assert!(there(&store, &data(1)).await.is_some());
        });
    }
}
