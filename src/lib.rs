//! The service between an online judge and heng-controller.

pub mod protocol;

pub mod embedded;
pub mod supervision;
