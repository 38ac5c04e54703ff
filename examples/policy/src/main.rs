//! `weir` with one policy more.

fn main() -> std::process::ExitCode {
    weir_policy::add_policies(&equal_parts::POLICIES);
    weir_cli::main()
}
