"""What a figure's lines say, in sentences: whether they have the shape that the paper describes."""

from itertools import pairwise

Means = dict[float, float]  # x -> mean NDCG@20


def best_place(curve: Means) -> float:
    """Return where a curve is highest, the first such place."""
    return max(curve, key=lambda x: (curve[x], -x))


def random_shape(curves: dict[str, Means]) -> list[str]:
    """Return how far untrained layers get: the paper has Rankformer gain much by depth and LightGCN little."""
    rivals = [curve for label, curve in curves.items() if label.startswith("LightGCN") and curve]
    sentences = []
    for label, curve in curves.items():
        if label.startswith("LightGCN") or not curve or not rivals:
            continue
        depths = [x for x in curve if x > 0]
        above = [x for x in depths if all(curve[x] > other[x] for other in rivals)]
        if len(above) == len(depths):
            words = "above LightGCN at every depth, as in the paper"
        elif above:
            words = f"above LightGCN at {len(above)} of {len(depths)} depths only, the first of them {above[0]:g}"
        else:
            words = "above LightGCN at no depth, which is not the paper's shape"
        sentences.append(f"{label} is {words}; its best is {_top(curve)}, LightGCN's {_top(max(rivals, key=_height))}.")
    return sentences


def _height(curve: Means) -> float:
    return max(curve.values())


def _top(curve: Means) -> str:
    return f"{_height(curve):.4f} at {best_place(curve):g} layers"


def rises_then_falls(curve: Means) -> str:
    """Return how a curve runs: to its best place and from there, or that the best place is an end."""
    places = sorted(curve)
    best = best_place(curve)
    if best in (places[0], places[-1]):
        return f"highest at {'the first' if best == places[0] else 'the last'} value, {best:g}"
    values = [curve[x] for x in places]
    turn = places.index(best)
    steady = values[: turn + 1] == sorted(values[: turn + 1]) and values[turn:] == sorted(values[turn:], reverse=True)
    return f"rises to its best at {best:g} and falls{'' if steady else ', with ups and downs on the way'}"


def tau_shape(curves: dict[str, Means]) -> list[str]:
    """Return whether each line rises and then falls and whether the best tau shrinks with depth, as the paper says."""
    known = {label: curve for label, curve in curves.items() if len(curve) > 2}
    if not known:
        return ["too few values of tau were measured to speak of a shape."]
    sentences = [
        f"{label}: {rises_then_falls(curve)} ({curve[best_place(curve)]:.4f})." for label, curve in known.items()
    ]
    if len(known) > 1:
        best = [best_place(curve) for curve in known.values()]
        steps = ", ".join(f"{each:g}" for each in best)
        if all(later <= earlier for earlier, later in pairwise(best)) and best[-1] < best[0]:
            sentences.append(f"the best tau falls with the number of layers ({steps}), as in the paper.")
        else:
            sentences.append(f"the best tau over the number of layers is {steps}: not the paper's steady fall.")
    return sentences


def alpha_shape(curves: dict[str, Means]) -> list[str]:
    """Return whether quality rises and then falls with alpha, as the paper says it generally does."""
    sentences = []
    for label, curve in curves.items():
        if len(curve) < 3:
            return ["too few values of alpha were measured to speak of a shape."]
        words = rises_then_falls(curve)
        agrees = "as in the paper" if words.startswith("rises") else "not the paper's rise and fall"
        sentences.append(f"{label}: {words} ({curve[best_place(curve)]:.4f}), {agrees}.")
    return sentences
