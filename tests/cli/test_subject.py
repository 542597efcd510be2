"""The model and the problem that commands on a model use."""

from commands import call
from ridgeformer import save
from support import tame_model


def test_a_shipped_model_is_evaluated_on_what_it_was_trained_on():
    done = call("eval", "zoo:diag/6/uniform(0,0)", "--sequences", "500").stdout
    assert "d=10 n=20 uniform(0,0)" in done
    assert "zoo:diag/6/uniform(0,0)" in done
    assert "e-1" in done  # a loss near 1e-10 is not shown as 0.00000
    other = call("eval", "zoo:diag/6/uniform(0,0)", "--sequences", "500", "--noise", "fixed(1)", "--context", "30")
    assert "d=10 n=30 fixed(1)" in other.stdout
    assert (
        "d=10 n=20 uniform(0,1)"
        in call("eval", "zoo:diag/2/uniform(0,1)", "--over", "sigma", "--sequences", "50").stdout
    )


def test_a_model_that_does_not_know_its_problem_needs_noise(tmp_path):
    save(tame_model("diag", 3, 1, 1, 6), tmp_path / "model.safetensors")
    failed = call("eval", str(tmp_path / "model.safetensors"))
    assert failed.returncode == 2
    assert "--noise is missing. Add it, for example --noise 'uniform(0,5)'" in " ".join(failed.stderr.split())
