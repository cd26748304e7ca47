"""What a figure's lines say, in sentences: whether they have the shape that the paper describes."""

Means = dict[float, float]  # x -> mean NDCG@20


def best_place(curve: Means) -> float:
    """Return where a curve is highest, the first such place."""
    return max(curve, key=lambda x: (curve[x], -x))


def random_shape(curves: dict[str, Means]) -> list[str]:
    """Return how far untrained layers get: the paper has Rankformer gain much by depth and LightGCN little."""
    sentences = []
    for ours, theirs in (("rankformer", "lightgcn"), ("rankformer after its warm-up", "lightgcn, last layer")):
        rank, light = curves.get(ours), curves.get(theirs)
        if not rank or not light:
            continue
        depths = [x for x in rank if x > 0 and x in light]
        above = [x for x in depths if rank[x] > light[x]]
        if depths and len(above) == len(depths):
            words = "is above it at every depth, as in the paper"
        elif above:
            words = f"is above it at {len(above)} of {len(depths)} depths, which is not the paper's shape throughout"
        else:
            words = "is above it at no depth, which is not the paper's shape"
        tops = [f"{curve[best_place(curve)]:.4f} at {best_place(curve):g}" for curve in (rank, light)]
        sentences.append(f"{ours} (best {tops[0]} layers) beside {theirs} (best {tops[1]}): Rankformer {words}.")
    return sentences


def rises_then_falls(curve: Means) -> str:
    """Return how a curve runs: its best place inside, or at which end."""
    places = sorted(curve)
    best = best_place(curve)
    if best in (places[0], places[-1]):
        return f"highest at {'the first' if best == places[0] else 'the last'} value, {best:g}"
    return f"rises, is highest at {best:g}, and falls"


def tau_shape(curves: dict[str, Means]) -> list[str]:
    """Return whether each line rises and then falls and whether the best tau shrinks with depth, as the paper says."""
    known = {label: curve for label, curve in curves.items() if len(curve) > 2}
    if not known:
        return ["too few values of tau were measured to speak of a shape."]
    sentences = [f"{label}: {rises_then_falls(curve)} ({curve[best_place(curve)]:.4f})." for label, curve in known.items()]
    if len(known) > 1:
        best = [best_place(curve) for curve in known.values()]
        steps = ", ".join(f"{each:g}" for each in best)
        if all(later <= earlier for earlier, later in zip(best, best[1:], strict=False)) and best[-1] < best[0]:
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
