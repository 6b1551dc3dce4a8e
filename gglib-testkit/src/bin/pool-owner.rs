//! A process that owns a pool, for tests that kill it: it launches an engine of the model file given first, with the
//! arguments that follow, enters it in the register in `POOL_OWNER_REGISTER`, if that is set, and never ends by itself.

use std::env;
use std::future::pending;
use std::io::{self, Write};
use std::path::PathBuf;

use gglib_core::model::ModelName;
use gglib_runtime::engine::Register;
use gglib_testkit::Engines;
use gglib_testkit::engines::{Enter, engine_pid, only_engine};

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut args = env::args().skip(1);
    let model = PathBuf::from(args.next().expect("a model file"));
    let mut engines = Engines::fake().model("a", &model, 1, args.collect());
    engines.register =
        env::var_os("POOL_OWNER_REGISTER").map(|dir| Register::open(dir.as_ref())).transpose()?;
    let pool = engines.start();
    let told = async {
        let pid = engine_pid(&*pool).await;
        let address = only_engine(&*pool).await.address.expect("a process has an address");
        writeln!(io::stderr(), "engine {pid} {address}")
    };
    let (_lease, told) = tokio::join!(
        async {
            let lease = pool.lease(ModelName::new("a")).await;
            writeln!(io::stderr(), "leased").map(|()| lease)
        },
        told
    );
    told?;
    pending().await
}
