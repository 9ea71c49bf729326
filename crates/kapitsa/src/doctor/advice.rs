//! What is wrong with a machine, and what to do about it.

use super::{Candidate, Fit, Isa, Origin, Report};

impl Report {
    /// A line for each thing that stands in the way, with the next step.
    pub fn advice(&self) -> Vec<String> {
        let mut lines = vec![];
        let lacking: Vec<&str> =
            self.processor.features.iter().filter(|(_, has)| !has).map(|(name, _)| *name).collect();
        if self.processor.chosen() == Isa::Portable && !lacking.is_empty() {
            lines.push(format!(
                "the processor lacks {}, so kernels run as portable code; in a virtual machine, have its processor be that of \
                 the host",
                lacking.join(", ")
            ));
        }
        if let Err(reason) = &self.read_bandwidth {
            lines.push(format!("memory could not be measured: {reason}; end other programs and try again"));
        }
        match &self.disk.read {
            Err(reason) => lines.push(format!(
                "the disk could not be measured: {reason}; make room, or have the setting `home` (KAPITSA_HOME) name a folder \
                 of yours on another disk"
            )),
            Ok(read) if read.origin == Origin::Memory => lines.push(
                "the models folder is in memory, where models take room twice and end with the machine; have the setting \
                 `home` (KAPITSA_HOME) name a folder on a disk"
                    .into(),
            ),
            Ok(_) => {}
        }
        let runs = |candidate: &&Candidate| candidate.is_built && candidate.has_source;
        if !self.catalog.iter().filter(runs).any(|candidate| candidate.fit == Some(Fit::Now)) {
            lines.push("no model of the catalog fits the memory that is available; end other programs".into());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Disk, Processor, ReadSpeed, System};
    use super::*;
    use crate::Memory;

    fn healthy() -> Report {
        Report {
            system: System { name: None, kernel: None, libc: None },
            processor: Processor {
                model: None,
                architecture: "x86_64".into(),
                machine_cores: 8,
                cores: 8,
                features: vec![("avx2", true), ("f16c", true), ("avx512f", true)],
                sets: Isa::present(),
            },
            memory: Memory { total_bytes: 8 << 30, limit_bytes: None, available_bytes: 4 << 30 },
            read_bandwidth: Ok(2e10),
            disk: Disk {
                folder: "models".into(),
                free_bytes: Ok(9 << 30),
                read: Ok(ReadSpeed { bytes_per_second: 1e9, bytes: 1 << 29, origin: Origin::Disk }),
            },
            models: vec![],
            catalog: vec![Candidate {
                name: "small:4bit".into(),
                is_built: true,
                has_source: true,
                is_chosen: true,
                need_bytes: Some(1 << 30),
                fit: Some(Fit::Now),
                tokens_per_second: Some(20.0),
            }],
        }
    }

    #[test]
    fn a_healthy_machine_needs_no_advice() {
        assert_eq!(healthy().advice(), [""; 0]);
    }

    #[test]
    fn a_processor_without_avx2_is_said_to_be_one() {
        let mut report = healthy();
        report.processor.features = vec![("avx2", false), ("f16c", true), ("avx512f", false)];
        report.processor.sets = vec![Isa::Portable];
        let advice = report.advice();
        assert!(advice.len() == 1 && advice[0].starts_with("the processor lacks avx2, avx512f, so"), "{advice:?}");
        // Elsewhere the portable set is all there is.
        report.processor.features = vec![];
        assert_eq!(report.advice(), [""; 0]);
    }

    #[test]
    fn what_was_not_measured_has_a_reason_and_a_next_step() {
        let mut report = healthy();
        report.read_bandwidth = Err("no memory".into());
        report.disk.read = Err("less than 2 GiB are free".into());
        let advice = report.advice();
        assert!(advice[0].contains("no memory; ") && advice[1].contains("less than 2 GiB are free; "), "{advice:?}");
    }

    #[test]
    fn a_machine_for_no_model_is_said_to_be_one() {
        let mut report = healthy();
        report.catalog[0].fit = Some(Fit::Later);
        assert!(report.advice()[0].starts_with("no model of the catalog fits"));
    }

    #[test]
    fn models_in_memory_are_no_good() {
        let mut report = healthy();
        report.disk.read = report.disk.read.map(|read| ReadSpeed { origin: Origin::Memory, ..read });
        assert!(report.advice()[0].starts_with("the models folder is in memory"));
    }
}
