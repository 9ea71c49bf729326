//! `kapitsa completions` and `kapitsa man`: what packagers install beside the program, made from its own options.

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::output::{Failure, print_bytes};

pub(crate) fn completions(args: CompletionsArgs) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut Args::command(), "kapitsa", &mut script);
    print_bytes(&script)
}

pub(crate) fn man(args: ManArgs) -> Result<(), Failure> {
    let Some(folder) = args.out else {
        let mut page = vec![];
        // Nothing that is written to memory fails.
        let _ = clap_mangen::Man::new(Args::command().disable_help_subcommand(true)).render(&mut page);
        return print_bytes(&page);
    };
    std::fs::create_dir_all(&folder)
        .and_then(|()| clap_mangen::generate_to(Args::command(), &folder))
        .map_err(|error| Failure::Error(format!("{}: cannot write the pages: {error}", folder.display())))
}
