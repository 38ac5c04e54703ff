//! The one binary, `weir`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    weir_policy::add_policies(weir_lp::POLICIES);
    weir_cli::main()
}
