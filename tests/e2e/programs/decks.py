"""A deck that rank 0 makes."""

from flytekit import Deck, current_context, task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


@task(task_config=Elastic(nproc_per_node=2), enable_deck=True)
def train(seed: int) -> int:
    gather(None)
    Deck("loss", f"<p>{seed}</p>")
    return seed


def main(seed):
    value = train(seed=seed)
    return [value, [deck.name for deck in current_context().decks if deck.name == "loss"]]


def plain(seed):
    return [train.task_function(seed), ["loss"]]
