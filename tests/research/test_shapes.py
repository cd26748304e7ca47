from rankformer.research.shapes import alpha_shape, best_place, random_shape, rises_then_falls, tau_shape


def test_the_first_of_equal_places_is_the_best():
    assert best_place({0.0: 1.0, 0.5: 2.0, 1.0: 2.0}) == 0.5


def test_a_curve_in_words():
    assert rises_then_falls({0: 1.0, 1: 3.0, 2: 2.0}) == "rises to its best at 1 and falls"
    assert "ups and downs" in rises_then_falls({0: 1.0, 1: 0.5, 2: 3.0, 3: 2.0})
    assert "the last value, 2" in rises_then_falls({0: 1.0, 1: 2.0, 2: 3.0})
    assert "the first value, 0" in rises_then_falls({0: 4.0, 1: 2.0, 2: 3.0})


def test_tau_has_the_papers_shape_when_its_best_value_falls_with_depth():
    early, late = {0.0: 1.0, 0.5: 3.0, 1.0: 2.0}, {0.0: 1.0, 0.5: 2.0, 1.0: 3.0}
    assert "as in the paper" in tau_shape({"L = 1": late, "L = 2": early})[-1]
    assert "not the paper's" in tau_shape({"L = 1": early, "L = 2": late})[-1]
    assert "not the paper's" in tau_shape({"L = 1": early, "L = 2": early})[-1]
    assert tau_shape({"L = 1": {0.0: 1.0}}) == ["too few values of tau were measured to speak of a shape."]


def test_alpha_has_the_papers_shape_when_it_rises_and_falls():
    assert "as in the paper" in alpha_shape({"Rankformer": {0: 1.0, 2: 3.0, 4: 2.0}})[0]
    assert "not the paper's" in alpha_shape({"Rankformer": {0: 1.0, 2: 2.0, 4: 3.0}})[0]
    assert "too few" in alpha_shape({"Rankformer": {0: 1.0}})[0]


def test_untrained_rankformer_is_compared_with_both_readings_of_lightgcn():
    light = {"LightGCN, mean": {0: 0.0, 1: 0.1, 2: 0.1}, "LightGCN, last": {0: 0.0, 1: 0.3, 2: 0.1}}
    assert "every depth" in random_shape({"Rankformer": {0: 0.0, 1: 0.4, 2: 0.5}, **light})[0]
    assert (
        "1 of 2 depths only, the first of them 2" in random_shape({"Rankformer": {0: 0.0, 1: 0.2, 2: 0.5}, **light})[0]
    )
    assert "no depth" in random_shape({"Rankformer": {0: 9.0, 1: 0.0, 2: 0.0}, **light})[0]
