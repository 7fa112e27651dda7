//! The service between an online judge and heng-controller.

pub mod embedded;
pub mod protocol;
pub mod supervision;
