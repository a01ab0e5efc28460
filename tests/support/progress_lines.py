"""Progress lines for tests of those who read them."""

from qmljob_api.progress import Progress


def progress(epoch: int, loss: float = 0.5, epochs: int = 10, seconds: float = 1.5) -> Progress:
    """Returns the line of an epoch of a run with 4 steps an epoch."""
    return Progress(
        role="worker",
        index=0,
        attempt=0,
        epoch=epoch,
        epochs=epochs,
        step=epoch * 4,
        loss=loss,
        sign_accuracy=0.75,
        val_loss=loss + 0.1,
        val_sign_accuracy=0.625,
        learning_rate=0.02,
        seconds=seconds,
        validation_seconds=0.5,
        examples_per_second=100.0,
    )
