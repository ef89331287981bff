//! Entries come, change and go.

use crate::simulate::faults::history::{History, Verdict, ensure};
use crate::simulate::faults::image::{Place, Spot};
use crate::simulate::faults::world::Kind;

impl History {
    fn place(&mut self) -> Place {
        let states = self.mood.states.max(1);
        let state = u8::try_from(self.random.below(states)).unwrap_or(0);
        Place { state, named: self.random.below(4) == 0 }
    }

    fn spot(&mut self) -> Spot {
        let place = self.place();
        (place, format!("k{}", self.random.below(self.mood.keys.max(1))))
    }

    /// An entry that is there, mostly.
    fn entry(&mut self) -> Spot {
        let any = self.spot();
        let spots = self.world.job().map(|job| job.memory.image().spots()).unwrap_or_default();
        let drawn = self.random.below(u32::try_from(spots.len()).unwrap_or(1).max(1)) as usize;
        if self.random.below(4) == 0 { any } else { spots.into_iter().nth(drawn).unwrap_or(any) }
    }

    fn value(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }

    async fn quietly(&mut self, command: &str) -> Verdict {
        let printed = self.stage.run(command).await?;
        ensure(printed.is_empty(), || format!("`{command}` printed `{}`", printed.join("; ")))
    }

    pub(super) async fn put(&mut self) -> Verdict {
        let place = self.place();
        let mut command = format!("put {place}");
        let mut entries = Vec::new();
        for _ in 0..=self.random.below(4) {
            let key = format!("k{}", self.random.below(self.mood.keys.max(1)));
            let value = self.value();
            command.push_str(&format!(" {key}={value}"));
            entries.push((key, value));
        }
        self.quietly(&command).await?;
        if let Some(job) = self.world.job_mut() {
            for (key, value) in entries {
                job.memory.put((place, key), value);
            }
        }
        Ok(())
    }

    pub(super) async fn update(&mut self) -> Verdict {
        let spot = self.spot();
        self.quietly(&format!("update {} {}=x", spot.0, spot.1)).await?;
        if let Some(job) = self.world.job_mut() {
            job.memory.update(&spot, "x");
        }
        Ok(())
    }

    /// An entry goes and its key comes back at once.
    pub(super) async fn put_again(&mut self) -> Verdict {
        let spot = self.entry();
        self.put_again_at(spot).await
    }

    /// A key comes back between two checkpoints and goes again later: what older segments hold of it must stay hidden.
    pub(super) async fn churn(&mut self) -> Verdict {
        let spot = self.entry();
        self.checkpoint(Kind::Checkpoint).await?;
        self.put_again_at(spot.clone()).await?;
        self.checkpoint(Kind::Checkpoint).await?;
        self.checkpoint(Kind::Checkpoint).await?;
        self.remove_at(&spot).await?;
        self.checkpoint(Kind::Checkpoint).await?;
        self.checkpoint(Kind::Checkpoint).await.map(|_| ())
    }

    async fn put_again_at(&mut self, spot: Spot) -> Verdict {
        let value = self.value();
        self.quietly(&format!("del {} {}", spot.0, spot.1)).await?;
        self.quietly(&format!("put {} {}={value}", spot.0, spot.1)).await?;
        if let Some(job) = self.world.job_mut() {
            job.memory.remove(&spot);
            job.memory.put(spot, value);
        }
        Ok(())
    }

    pub(super) async fn remove(&mut self) -> Verdict {
        let spot = self.entry();
        self.remove_at(&spot).await
    }

    async fn remove_at(&mut self, spot: &Spot) -> Verdict {
        self.quietly(&format!("del {} {}", spot.0, spot.1)).await?;
        if let Some(job) = self.world.job_mut() {
            job.memory.remove(spot);
        }
        Ok(())
    }

    pub(super) async fn clear(&mut self) -> Verdict {
        let place = self.place();
        let whole = self.random.below(2) == 0;
        // The void namespace alone has no spelling: leaving it out means all of them.
        let command = match place.named {
            true if !whole => format!("clear {place}"),
            _ => format!("clear state={}", place.state_name()),
        };
        self.quietly(&command).await?;
        if let Some(job) = self.world.job_mut() {
            job.memory.clear(place.state, (place.named && !whole).then_some(true));
        }
        Ok(())
    }

    pub(super) async fn dump(&mut self) -> Verdict {
        let place = self.place();
        self.check_dump(place).await
    }

    /// The current job's entries are those that they should be.
    pub(in crate::simulate::faults) async fn check_dump(&mut self, place: Place) -> Verdict {
        let command = format!("dump {place}");
        let printed = self.stage.run(&command).await?;
        let expected = vec![self.job()?.memory.image().dump(place)];
        if printed != expected {
            self.stage.transcript().correct(expected);
            return Err(crate::simulate::faults::history::Breach(format!(
                "`{command}` printed `{}`",
                printed.join("; ")
            )));
        }
        Ok(())
    }
}
