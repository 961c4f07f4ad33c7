"""Random changes of JSON values."""

from copy import deepcopy


def mutate(tree, dice, odd):
    """Replace a part of the value with another part or an odd value, or remove it."""
    places = [(tree, key) for key in tree]
    for holder, key in places:
        value = holder[key]
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        places += [(value, each) for each in keys]
    holder, key = dice.choice(places)
    act = dice.random()
    if act < 0.2:
        del holder[key]
    elif act < 0.4:
        other, name = dice.choice(places)
        holder[key] = deepcopy(other[name]) if isinstance(name, int) or name in other else None
    else:
        holder[key] = deepcopy(dice.choice(odd))  # A copy: a later mutation may put the value into itself.
