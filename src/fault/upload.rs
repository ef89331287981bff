//! A multipart upload whose steps meet faults, and which is counted until it ends.

use std::fmt;

use async_trait::async_trait;
use futures::FutureExt;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use super::plan::{FaultClass, FaultMode, FaultOperation, Faults, Opened};
use super::store::{failure, lost_reply, settle};

/// One upload under way.
pub(super) struct FaultUpload {
    inner: Box<dyn MultipartUpload>,
    object: Path,
    faults: Faults,
}

impl FaultUpload {
    pub(super) fn new(inner: Box<dyn MultipartUpload>, object: Path, faults: Faults) -> Self {
        Self { inner, object, faults }
    }
}

impl fmt::Debug for FaultUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultUpload").field("object", &self.object).finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let met = self.faults.meet(FaultOperation::Multipart, FaultClass::Data);
        let part = self.inner.put_part(data);
        let (faults, object) = (self.faults.clone(), self.object.clone());
        async move {
            let met = match met {
                Some(met) => settle(&faults, met).await,
                None => None,
            };
            match met {
                None => part.await,
                Some(FaultMode::After) => {
                    part.await?;
                    lost_reply(&faults, &object).await
                }
                Some(_) => Err(failure("the part did not arrive", &object)),
            }
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let met = match self.faults.meet(FaultOperation::Multipart, FaultClass::Data) {
            Some(met) => settle(&self.faults, met).await,
            None => None,
        };
        if !matches!(met, None | Some(FaultMode::After)) {
            return Err(failure("the upload is not completed", &self.object));
        }
        let done = self.inner.complete().await?;
        self.faults.note_multipart(Opened::Ended);
        match met {
            None => Ok(done),
            Some(_) => lost_reply(&self.faults, &self.object).await,
        }
    }

    async fn abort(&mut self) -> Result<()> {
        if self.faults.is_dead() {
            return self.faults.hang().await;
        }
        self.inner.abort().await?;
        self.faults.note_multipart(Opened::Ended);
        Ok(())
    }
}
