"""Models in the address of the page, read by Python alone."""

import numpy as np
import pytest

from ridgeformer import Diag, GDpp, InputError, load, zoo
from ridgeformer.playground import _models, is_address, page, read_address, write_page


def test_an_address_is_a_model():
    model = load(
        "file:///tmp/playground.html#view=explore&d=3&n=7&noise=uniform(0,5)&omega=1e-2,0.5,-0.03,-4;0,0,-0.1,2"
    )
    assert isinstance(model.family, Diag)
    assert model.dim == 3
    np.testing.assert_array_equal(model.kernel.omega, [[[1e-2, 0.5], [-0.03, -4]], [[0, 0], [-0.1, 2]]])


def test_terms_that_are_off_are_zero():
    model = read_address("#omega=1,2,3,4;5,6,7,8&off=1.xy,2.yy")
    np.testing.assert_array_equal(model.kernel.omega.reshape(2, 4), [[1, 0, 3, 4], [5, 6, 7, 0]])


def test_a_gdpp_model():
    model = read_address("family=gdpp&d=2&omega=-0.01,0,-0.03,0")
    assert isinstance(model.family, GDpp)
    np.testing.assert_array_equal(model.family.omega[0], [[-0.01, 0], [-0.03, 0]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#d=10", "omega=xx,xy,yx,yy"),
        ("#omega=1,2,3", "four numbers per layer"),
        ("#omega=1,2,3,x", "four numbers per layer"),
        ("#omega=1,2,3,4&d=0", "from 1 to 20"),
        ("#omega=1,2,3,4&family=full", "diag or gdpp"),
        ("#omega=1,2,3,4&family=gdpp", "xy = yy = 0"),
        ("#omega=1,2,3,4&off=2.xx", "such as 2.xy"),
        ("#omega=1,2,3,nan", "finite"),
        (7, "a text"),
    ],
)
def test_other_texts_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        read_address(text)


def test_only_addresses_look_like_one():
    assert is_address("#omega=0,0,0,0")
    assert not any(map(is_address, ["model.safetensors", "omega=1", "a#b", None, 3]))


def test_the_page_is_one_file(tmp_path):
    text = page()
    assert len(text.encode()) < 3e6
    assert "{{" not in text[:2000]
    assert not any(mark in text for mark in ('src="http', "src='http", 'href="http', "@import"))
    path = write_page(tmp_path / "page.html")
    assert path.read_text() == text


def test_the_page_offers_the_small_models_of_the_zoo():
    offered = {model["name"]: model for model in _models()}
    for dim in (1, 2):
        for family, layers, noise in zoo.shipped(dim).made:
            model = offered[f"d={dim}: {family}/{layers}/{noise}"]
            assert (model["d"], model["n"], len(model["omega"])) == (dim, 10, layers)
            expected = load(f"zoo:d={dim}/{family}/{layers}/{noise}").kernel[0]
            np.testing.assert_array_equal(np.reshape(model["omega"], (-1, 2, 2)), expected)
