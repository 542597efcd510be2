// Tasks, and their mean given the context: the ridge weights.
#pragma once
#include "features.hpp"

namespace ridgeformer {
namespace {

struct Tasks : Features {
    using Features::Features;
    V *g, *w;  // standard normals, and the task made of them
    V *z, *t;  // the noise, and y, in the basis in which A is given
    V *H;      // F'A, [rank][m]

    // w = mean + F g, or a task of the pool.
    void make_task(const std::int64_t *choice, int count) {
        for (Size i = 0; i < d; ++i) {
            V x = law.mean ? splat(law.mean[i]) : V{};
            if (law.task_factor)
                for (Size j = 0; j < rank; ++j) x += law.task_factor[i * rank + j] * g[j];
            else x += g[i];
            w[i] = x;
        }
        if (!law.pool) return;
        for (int k = 0; k < kLanes && k < count; ++k)
            if (choice[k] >= 0)
                for (Size i = 0; i < d; ++i) w[i][k] = law.pool[choice[k] * d + i];
    }

    // Cholesky of the lower triangle of N (of the given size), then N x = b in place of b.
    void solve(V *b, Size size) {
        for (Size j = 0; j < size; ++j) {
            if (counter(j).stop(size - j)) return;
            V pivot = N[j * d + j];
            const V least = pivot * (sizeof(T) == 4 ? T(1e-7) : T(2e-16));
            for (Size k = 0; k < j; ++k) pivot -= N[j * d + k] * N[j * d + k];
            pivot = pivot > least ? pivot : least;  // singular to working precision: stay finite
            const V inverse = T(1) / square_root(pivot);
            N[j * d + j] = inverse;
            for (Size i = j + 1; i < size; ++i) {
                V x = N[i * d + j];
                for (Size k = 0; k < j; ++k) x -= N[i * d + k] * N[j * d + k];
                N[i * d + j] = x * inverse;
            }
        }
        for (Size i = 0; i < size; ++i) {
            for (Size k = 0; k < i; ++k) b[i] -= N[i * d + k] * b[k];
            b[i] *= N[i * d + i];
        }
        for (Size i = size; i-- > 0;) {
            for (Size k = i + 1; k < size; ++k) b[i] -= N[k * d + i] * b[k];
            b[i] *= N[i * d + i];
        }
    }

    // E[w | context, sigma] = mean + F E[g | context, sigma]. With H = F'A, and enough tokens for all directions of g, that
    // is g + (H H' + sigma^2)^-1 sigma (H z - sigma g), which is exact at sigma = 0; otherwise it is
    // H (H'H + sigma^2)^-1 (t - A'mean), which needs no inverse of H H'.
    void ridge(const V *S, V sigma, V tokens, V *out) {
        const bool enough = counted(law.shortest) >= rank;
        if (law.task_factor) {
            multiply_tasks();
            if (enough) primal<false>(H, S, sigma, u);
            else dual<false>(H, sigma, tokens, u);
            for (Size i = 0; i < d; ++i) {
                out[i] = V{};
                for (Size j = 0; j < rank; ++j) out[i] += law.task_factor[i * rank + j] * u[j];
            }
        } else if (enough) {
            primal<true>(A, S, sigma, out);
        } else {
            dual<true>(A, sigma, tokens, out);
        }
        if (law.mean)
            for (Size i = 0; i < d; ++i) out[i] += law.mean[i];
    }

    // H = F'A.
    void multiply_tasks() {
        for (Size i = 0; i < rank; ++i) {
            if (counter(d).stop(m)) return;
            for (Size j = 0; j < m; ++j) {
                V sum{};
                for (Size k = dense ? 0 : j; k < d; ++k) sum += law.task_factor[k * rank + i] * A[k * d + j];
                H[i * d + j] = sum;
            }
        }
    }

    // Plain: H is A, and H H' is S.
    template <bool Plain>
    void primal(const V *rows, const V *S, V sigma, V *out) {
        V *b = Plain && !dense ? z : t;  // z and t are no longer needed; a triangle lets the right side take z's place
        for (Size i = rank; i-- > 0;) {
            V Hz{};
            for (Size k = 0; k < (Plain ? width(i) : m); ++k) Hz += rows[i * d + k] * z[k];
            b[i] = sigma * (Hz - rounded(sigma * g[i]));
            for (Size j = 0; j <= i; ++j) N[i * d + j] = Plain ? S[packed(i, j)] : dot(H + i * d, H + j * d, m);
            N[i * d + i] += sigma * sigma;
        }
        solve(b, rank);
        for (Size i = 0; i < rank; ++i) out[i] = g[i] + b[i];
    }

    template <bool Plain>
    void dual(const V *rows, V sigma, V tokens, V *out) {
        V *b = z;
        for (Size i = 0; i < m; ++i) {
            if (counter(d - i).stop(i + 1)) return;
            b[i] = t[i];
            if (law.mean)
                for (Size k = dense ? 0 : i; k < d; ++k) b[i] -= law.mean[k] * A[k * d + i];
            for (Size j = 0; j <= i; ++j) {
                V x{};
                for (Size k = Plain && !dense ? i : 0; k < rank; ++k) x += rows[k * d + i] * rows[k * d + j];
                N[i * d + j] = x;
            }
            N[i * d + i] += sigma * sigma;
            if (i >= counted(law.shortest)) N[i * d + i] += tokens > T(i + law.standardised) ? V{} : splat(T(1));
        }
        solve(b, m);
        for (Size i = 0; i < rank; ++i) {
            V x{};
            for (Size k = 0; k < (Plain ? width(i) : m); ++k) x += rows[i * d + k] * b[k];
            out[i] = x;
        }
    }
};

}  // namespace
}  // namespace ridgeformer
